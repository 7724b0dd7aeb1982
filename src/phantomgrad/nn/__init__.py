"""Building blocks of implicit models."""

from phantomgrad.nn.compilation import CompiledCalls
from phantomgrad.nn.dropout import VariationalDropout, resample_dropout, shared_masks
from phantomgrad.nn.packing import Packing
from phantomgrad.nn.parametrizations import shared_parametrizations
from phantomgrad.nn.recomputation import recomputed
from phantomgrad.nn.weight_norm import NormedLinear, reduce_normed

__all__ = [
    "CompiledCalls",
    "NormedLinear",
    "Packing",
    "VariationalDropout",
    "recomputed",
    "reduce_normed",
    "resample_dropout",
    "shared_masks",
    "shared_parametrizations",
]
