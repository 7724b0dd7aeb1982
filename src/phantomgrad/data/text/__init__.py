"""Corpora for language models."""
