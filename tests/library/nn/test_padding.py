"""Padded sequences, with zeros from the cell: each is solved, and differentiated, as alone."""

import pytest
import torch
from methods import ESTIMATORS, SOLVERS
from problems import relative_error
from torch import nn

import phantomgrad as pg

LENGTHS, WIDTH = (6, 4), 4
EXTRA = {"reversible": pg.Reversible(), "steps": pg.Steps(9), "max": pg.Anderson(norm="max")}
METHODS = SOLVERS | EXTRA


class Attention(nn.Module):
    """Self-attention with a key-padding mask, then LayerNorm, and zeros at the padding."""

    def __init__(self):
        super().__init__()
        self.maps, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, z, x, padding):
        q, k, v = self.maps(z).chunk(3, dim=-1)
        scores = (q @ k.mT).masked_fill(padding.unsqueeze(1), -torch.inf)
        # The odd sign makes rows without an injection oscillate.
        fz = self.norm(x - 0.3 * (scores.softmax(-1) @ v) - 0.2 * z)
        return fz.masked_fill(padding.unsqueeze(-1), 0)


def made(solver, gradient):
    """Return a layer, sequences, and a batch of them with where it is padding."""
    torch.manual_seed(0)
    layer = pg.DEQ(Attention(), solver, gradient)
    layer.check_map = False
    sequences = [3 * torch.randn(1, n, WIDTH) for n in LENGTHS]
    x = nn.utils.rnn.pad_sequence([s[0] for s in sequences], batch_first=True)
    x = torch.cat([x, torch.zeros(2, 5, WIDTH)], dim=1)
    return layer, sequences, x, torch.arange(x.shape[1]) >= torch.tensor(LENGTHS)[:, None]


def alone(layer, x):
    return layer(x, torch.zeros(x.shape[:2], dtype=torch.bool))


@pytest.mark.parametrize("solver", METHODS.values(), ids=METHODS)
def test_sequences_are_solved_as_they_are_alone(solver):
    layer, sequences, x, padding = made(solver, pg.UnrolledPhantomGradient(3, 0.5))
    z, solution = layer(x, padding)
    for i, sequence in enumerate(sequences):
        expected, report = alone(layer, sequence)
        torch.testing.assert_close(z[i : i + 1, : sequence.shape[1]], expected)
        assert solution.evaluations[i] == report.evaluations[0]
        assert solution.converged[i] == report.converged[0]
        torch.testing.assert_close(solution.residual[i], report.residual[0], rtol=1e-6, atol=0)
    assert not z[padding].any()
    assert solution.converged.all() or isinstance(solver, pg.Steps)


@pytest.mark.parametrize("parts", ESTIMATORS.values(), ids=ESTIMATORS)
def test_sequences_have_the_gradients_that_they_have_alone(parts):
    layer, sequences, x, padding = made(*parts)

    def gradients(z):
        return torch.autograd.grad((z**3).sum(), list(layer.parameters()))

    found = gradients(layer(x, padding).z)
    each = [gradients(alone(layer, sequence).z) for sequence in sequences]
    assert relative_error(found, tuple(map(sum, zip(*each, strict=True)))) < 1e-7
