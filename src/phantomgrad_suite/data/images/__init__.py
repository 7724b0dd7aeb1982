"""Data sets of images to classify."""
