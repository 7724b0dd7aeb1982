"""Building blocks of implicit models."""

from phantomgrad.nn.compilation import CompiledCalls
from phantomgrad.nn.dropout import VariationalDropout, shared_masks
from phantomgrad.nn.packing import Packing
from phantomgrad.nn.parametrizations import (
    NormedLinear,
    discarded_parametrizations,
    reduce_normed,
    shared_parametrizations,
)
from phantomgrad.nn.recomputation import recomputed

__all__ = [
    "CompiledCalls",
    "NormedLinear",
    "Packing",
    "VariationalDropout",
    "discarded_parametrizations",
    "recomputed",
    "reduce_normed",
    "shared_masks",
    "shared_parametrizations",
]
