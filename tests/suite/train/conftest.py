"""What tests of runs share."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """wandb without network."""
    module = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield module
    module.finish()
    module.teardown()
