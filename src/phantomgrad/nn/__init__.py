"""Building blocks of implicit models."""

from phantomgrad.nn.closure import Closure, pure_map
from phantomgrad.nn.compilation import CompiledCalls, in_one_graph
from phantomgrad.nn.dropout import VariationalDropout, shared_masks
from phantomgrad.nn.packing import Packing, padding_of
from phantomgrad.nn.parametrizations import (
    NormedLinear,
    discarded_parametrizations,
    make_shareable,
    reduce_normed,
    shared_parametrizations,
)
from phantomgrad.nn.recomputation import recomputed

__all__ = [
    "Closure",
    "CompiledCalls",
    "NormedLinear",
    "Packing",
    "VariationalDropout",
    "discarded_parametrizations",
    "in_one_graph",
    "make_shareable",
    "padding_of",
    "pure_map",
    "recomputed",
    "reduce_normed",
    "shared_masks",
    "shared_parametrizations",
]
