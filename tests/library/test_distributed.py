"""Two processes, each with a half of the batch, find the gradients of the whole."""

import distributed_worker
import pytest
import torch
from problems import relative_error
from training import needs_gloo

pytestmark = needs_gloo


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    # New interpreters: after other tests, autograd may have threads, which a fork would lack.
    torch.multiprocessing.spawn(distributed_worker.work, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", distributed_worker.CASES)
def test_gradients_are_those_of_the_global_batch(ranks, name):
    """With separate batch statistics, they are the mean of the gradients of the halves."""
    _, batch = distributed_worker.case(name)
    parts = batch.chunk(2) if name.endswith("own") else [batch]
    alone = [distributed_worker.gradients(distributed_worker.case(name)[0], x) for x in parts]
    expected = tuple(sum(group) / len(parts) for group in zip(*alone, strict=True))
    assert len(expected) >= 6
    for found in ranks:
        assert relative_error(found[name], expected) < 1e-8


def test_processes_agree_on_the_largest_radius(ranks):
    assert [found["radius"] for found in ranks] == [pytest.approx(3.0)] * 2
