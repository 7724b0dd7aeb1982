"""MDEQ, the multiscale deep equilibrium model (Bai et al., 2020), as the paper trains it.

The files follow the figure: the cell (block, fusion, post-fusion), the head on the equilibrium, and
the classifier, which includes the stem.
"""

from phantomgrad.models.mdeq.cell import MDEQCell
from phantomgrad.models.mdeq.classifier import MDEQ

__all__ = ["MDEQ", "MDEQCell"]
