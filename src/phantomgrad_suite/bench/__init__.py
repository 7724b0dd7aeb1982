"""How fast, and in how much memory: ours against torchdeq on the same maps.

Both sides get the same map, start, residual and number of evaluations of ``f``, with a tolerance
no one reaches, so that both spend the whole budget. :func:`run` measures all cases of one device.
"""

from phantomgrad_suite.bench.options import Options
from phantomgrad_suite.bench.suite import run

__all__ = ["Options", "run"]
