"""Time and memory of this library and of torchdeq on the same maps, with whole budgets spent."""

from against_torchdeq.study import PeerBench as PeerBench
