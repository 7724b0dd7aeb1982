"""Data modules over the loaders of torchvision, PyG and torch; none downloads during a run.

To add a data set, subclass :class:`DataModule`, or :class:`ImageData` for images that travel as
bytes, :class:`LanguageData` for texts, :class:`PuzzleData` for puzzles with one solution.
"""

from phantomgrad_suite.data.base import DataModule
from phantomgrad_suite.data.graphs.chains import Chains
from phantomgrad_suite.data.graphs.ppi import PPI
from phantomgrad_suite.data.graphs.tu import GraphFolds
from phantomgrad_suite.data.images.base import ImageBatch, ImageData
from phantomgrad_suite.data.images.cifar import Cifar10
from phantomgrad_suite.data.images.digits import Digits
from phantomgrad_suite.data.images.imagenet import ImageNet
from phantomgrad_suite.data.puzzles.base import PuzzleBatch, PuzzleData
from phantomgrad_suite.data.puzzles.maze import Maze
from phantomgrad_suite.data.puzzles.sudoku import Sudoku, SudokuExtreme
from phantomgrad_suite.data.puzzles.words import Words
from phantomgrad_suite.data.text.corpora import PydocTopics, WikiText103
from phantomgrad_suite.data.text.streams import Corpus, LanguageData

__all__ = [
    "PPI",
    "Chains",
    "Cifar10",
    "Corpus",
    "DataModule",
    "Digits",
    "GraphFolds",
    "ImageBatch",
    "ImageData",
    "ImageNet",
    "LanguageData",
    "Maze",
    "PuzzleBatch",
    "PuzzleData",
    "PydocTopics",
    "Sudoku",
    "SudokuExtreme",
    "WikiText103",
    "Words",
]
