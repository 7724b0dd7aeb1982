"""A workshop for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard.workshop import Workshop


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    for file in made.held:
        file.close()
