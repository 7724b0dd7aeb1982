"""Puzzles as sequences of tokens, generated: Sudoku, mazes, and words over permutation groups."""
