"""Recursive reasoners: an extension of the suite, plugged in as ``docs/extending.md`` describes.

Puzzles with one solution, models that answer them segment by segment (the cells are in
:mod:`phantomgrad.models`), and what is measured of them.
"""
