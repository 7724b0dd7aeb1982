"""Where both sides of the benchmark are tried, and whether the peer is there."""

from __future__ import annotations

import pytest
import torch

from phantomgrad_suite.bench import peer

CPU = torch.device("cpu")
needs_peer = pytest.mark.skipif(
    peer.version() is None, reason="torchdeq is not installed: pip install -e '.[bench]'"
)
