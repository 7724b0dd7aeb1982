"""What the boards in a record mean: the boxes of a Sudoku, the tokens of a maze."""

BOXES = {4: (2, 2), 6: (2, 3), 9: (3, 3)}  # rows and columns of a box, by the side of the board
WALL, FREE, START, GOAL, PATH = range(1, 6)
