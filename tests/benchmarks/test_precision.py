"""The bench of precisions compares gradients of the same batch, weights and masks."""

from contextlib import nullcontext

import pytest
from training import SMALL_MDEQ

import precision

pytestmark = pytest.mark.filterwarnings("ignore:f is computed in torch.bfloat16")


@pytest.fixture
def folder(workplace, whole_runs):
    return whole_runs.train(workplace, "experiment=digits/implicit", "trainer.max_epochs=1")


def test_lines_of_a_run(folder):
    first, last = precision.compare(folder)
    assert [first["weights"], last["weights"]] == ["first", "last"]
    for line in (first, last):
        assert float(line["cosine"]) > 0.99
        assert float(line["residual"]) < float(line["residual, bf16"])
    assert first["residual"] != last["residual"]


@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_the_same_precision_gives_the_same_gradient(workplace, cifar_root, monkeypatch):
    """Of a row with dropout, shuffled batches and pretraining."""
    folder = workplace.train(
        *("experiment=table1/implicit", "trainer.max_epochs=1", *SMALL_MDEQ),
        *(f"runtime.dataset.root={cifar_root}", "dataset.batch_size=20"),
        *("solver.max_evaluations=3", "adjoint.max_evaluations=3"),
    )
    monkeypatch.setattr("torch.autocast", lambda *_, **__: nullcontext())
    for line in precision.compare(folder):
        assert (line["cosine"], line["norm ratio"]) == ("1.0000", "1.000")
        assert line["residual"] == line["residual, bf16"]
