"""Building blocks of implicit models."""

from phantomgrad.nn.dropout import VariationalDropout, resample_dropout
from phantomgrad.nn.packing import Packing
from phantomgrad.nn.parametrizations import shared_parametrizations

__all__ = ["Packing", "VariationalDropout", "resample_dropout", "shared_parametrizations"]
