"""Time and memory of this library and of torchdeq on the same maps, with whole budgets spent."""

from phantomgrad_suite.bench.study import PeerBench as PeerBench
