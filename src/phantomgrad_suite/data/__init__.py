"""Data modules over the loaders of torchvision, PyG and torch; none downloads during a run.

To add a data set, subclass :class:`DataModule`, or :class:`ImageData` for images that travel as
bytes, or :class:`LanguageData` for texts.
"""

from phantomgrad_suite.data.base import DataModule as DataModule
from phantomgrad_suite.data.graphs.chains import Chains as Chains
from phantomgrad_suite.data.graphs.ppi import PPI as PPI
from phantomgrad_suite.data.graphs.tu import GraphFolds as GraphFolds
from phantomgrad_suite.data.images.base import ImageBatch as ImageBatch
from phantomgrad_suite.data.images.base import ImageData as ImageData
from phantomgrad_suite.data.images.cifar import Cifar10 as Cifar10
from phantomgrad_suite.data.images.digits import Digits as Digits
from phantomgrad_suite.data.images.imagenet import ImageNet as ImageNet
from phantomgrad_suite.data.text.corpora import WikiText103 as WikiText103
from phantomgrad_suite.data.text.streams import Corpus as Corpus
from phantomgrad_suite.data.text.streams import LanguageData as LanguageData
