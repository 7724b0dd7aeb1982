"""Sizes, operations and initialisation of the DEQ-Transformer, compared to the official code."""

import pytest
import torch
import transformer_golden as golden
from torch.utils.flop_counter import FlopCounterMode
from training import composed

from phantomgrad.models import Memory, TransformerLM

VOCABULARY = 267_735  # of WikiText-103
# Weight norm counts directions and gains.
QKV, ROW = 2.94e6, 0.98e6  # operations of two projections, per token


def full_size(**settings):
    """The paper's model, on the meta device."""
    with torch.device("meta"):
        return TransformerLM(VOCABULARY, golden.STAY, golden.UPG, **settings)


@pytest.mark.parametrize(
    ("batch", "memory", "official"),
    [(1, 0, 139.93e6), (1, 150, 144.48e6), (1, 480, 154.49e6), (2, 150, 143.5e6)],
)
def test_operations_are_the_official_ones_except_for_constants(batch, memory, official):
    """Of one map, per token of a segment of 150. The official code projects distances and memory at
    each evaluation; here this is done once, with scores for one more distance."""
    model, tokens = full_size(), 150 * batch
    with torch.device("meta"):
        u, z = torch.empty(batch, 150, 2100), torch.empty(batch, 150, 700)
        remembered = Memory(torch.empty(batch, memory, 700), torch.empty(batch, memory, 2100))
        with FlopCounterMode(display=False) as once:
            context = model.context(u, remembered)
        with FlopCounterMode(display=False) as each:
            model.cell(z, context)
    distances = ROW * (memory + 150) / tokens
    assert each.get_total_flops() / tokens == pytest.approx(
        official - QKV * memory / 150 - distances + 1400, rel=1e-12
    )
    # The memory needs no queries.
    assert once.get_total_flops() / tokens == pytest.approx(
        2 / 3 * QKV * memory / 150 + distances, rel=1e-12
    )


@pytest.mark.parametrize("size", ["postln", "preln"])
def test_configurations_have_these_sizes(size):
    from hydra.utils import instantiate

    config = composed(["dataset=wikitext103", f"model=transformer_{size}", "gradient=upg"]).model
    with torch.device("meta"):
        model = instantiate(config, vocabulary=VOCABULARY)
    assert sum(p.numel() for p in model.parameters()) == 97_691_888
    assert model.cell.pre_norm == (size == "preln")
    protocol = (model.memory_length, model.embedding_dropout.p, model.cell.attention.dropout.p)
    assert protocol == {"postln": (150, 0.05, 0.0), "preln": (300, 0.06, 0.01)}[size]


def test_initialisation_is_the_official_one():
    model = TransformerLM(4000, golden.STAY, golden.UPG, width=100, inner=500, cutoffs=(1000, 2000))
    for name, parameter in model.named_parameters():
        if "bias" in name and not name.endswith(("content_bias", "position_bias")):
            assert not parameter.any(), name
        elif "original1" in name:
            bound = parameter.shape[1] ** -0.5
            assert 0.95 * bound < parameter.abs().max() <= bound, name
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.03), name
        elif "original0" in name:
            assert parameter.mean().item() == pytest.approx(3**-0.5, rel=0.03), name
        else:
            spread = 0.4 if parameter.numel() < 1000 else 0.05
            assert parameter.std().item() == pytest.approx(0.01, rel=spread), name
