"""Time and peak memory are measured as documented. Nothing is timed here."""

import gc

import pytest
import torch

from phantomgrad_suite.studies.meters import frozen_heap, paired_ratio, peak_bytes, spread

pytestmark = [pytest.mark.usefixtures("float32"), pytest.mark.filterwarnings("ignore:.*Profiler.*")]
CPU = torch.device("cpu")
MIB = 2**20


def test_peak_is_the_highest_point_and_not_the_sum():
    """Two megabytes are in use at once, then a third after the first two are freed."""

    def allocate():
        first, second = torch.empty(MIB // 4), torch.empty(MIB // 4)
        del first, second
        torch.empty(MIB // 4)

    assert peak_bytes(allocate, CPU) == 2 * MIB


def test_peak_counts_from_the_memory_in_use_before():
    """Memory of the caller does not count; memory that is still in use at the end does."""
    held, kept = torch.empty(MIB), []
    assert MIB <= peak_bytes(lambda: kept.append(held[: MIB // 4] + 1), CPU) < MIB + 100
    assert peak_bytes(lambda: held.add_(1), CPU) < 100


def test_peak_includes_temporaries_inside_an_operation():
    """The softmax of a transposed matrix copies it first."""
    x = torch.empty(512, 512).t()
    assert peak_bytes(lambda: torch.softmax(x, dim=1), CPU) >= 2 * x.nbytes


def test_the_heap_is_frozen_for_a_while():
    before = gc.get_freeze_count()
    with frozen_heap():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


def test_statistics_of_samples():
    """Ratios are taken within a round; a single sample is its own quartiles."""
    found = spread([1, 9, 2, 4, 3])
    assert found == {"median": 3, "quartiles": [2, 3, 4], "samples": [1, 9, 2, 4, 3]}
    assert spread([5])["quartiles"] == [5, 5, 5]
    assert paired_ratio([2, 4, 8], [1, 1, 4]) == 2
    assert paired_ratio([1], [0]) == float("inf")
