"""MDEQ, the multiscale deep equilibrium model (Bai et al., 2020), as the paper trains it."""

from phantomgrad.models.mdeq.cell import MDEQCell
from phantomgrad.models.mdeq.classifier import MDEQ

__all__ = ["MDEQ", "MDEQCell"]
