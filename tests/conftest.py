"""Every test runs in float64, from a fixed seed, and leaves no trace in the next one."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

pytest_plugins = [*("graph_data", "image_data", "text_data", "composition", "training")]

settings.register_profile(
    "phantomgrad", deadline=None, max_examples=20, derandomize=True, database=None
)
settings.load_profile("phantomgrad")


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
