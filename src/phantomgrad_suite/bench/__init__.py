"""Time and memory of this library and of torchdeq on the same maps, side by side.

Both sides get the same map, start and number of evaluations of ``f``, and a tolerance of zero, so
that both spend their whole budget. :func:`run` measures all cases on one device.
"""

from phantomgrad_suite.bench.run import Options, run

__all__ = ["Options", "run"]
