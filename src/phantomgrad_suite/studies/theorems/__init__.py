"""Theorems 1 to 3, put to the test."""
