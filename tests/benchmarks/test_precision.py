"""The bench of precisions compares gradients of the same batch, weights and masks."""

from contextlib import nullcontext

import pytest

import precision

pytestmark = pytest.mark.filterwarnings("ignore:f is computed in torch.bfloat16")
RUN = ("experiment=digits/implicit", "trainer.max_epochs=1")


@pytest.fixture
def folder(workplace, whole_runs):
    return whole_runs.train(workplace, *RUN)


def test_lines_of_a_run(folder):
    start, end = precision.compare(folder)
    assert [start["at its"], end["at its"]] == ["start", "end"]
    for line in (start, end):
        assert float(line["cosine"]) > 0.99
        assert float(line["residual"]) < float(line["residual, bf16"])
    assert start["residual"] != end["residual"]


def test_the_same_precision_gives_the_same_gradient(folder, monkeypatch):
    monkeypatch.setattr("torch.autocast", lambda *_: nullcontext())
    for line in precision.compare(folder):
        assert (line["cosine"], line["norm ratio"]) == ("1.0000", "1.000")
        assert line["residual"] == line["residual, bf16"]
