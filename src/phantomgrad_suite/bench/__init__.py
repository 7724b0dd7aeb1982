"""Time and memory of this library and of torchdeq on the same maps, with whole budgets spent."""

from phantomgrad_suite.bench.run import Options, run

__all__ = ["Options", "run"]
