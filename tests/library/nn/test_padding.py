"""Padded sequences: each is solved, and differentiated, as it is alone."""

import pytest
import torch
from methods import ESTIMATORS, SOLVERS
from problems import CoupledCell, TanhCell, relative_error
from torch import nn

import phantomgrad as pg

LENGTHS, WIDTH = (6, 4), 4
UPG = pg.UnrolledPhantomGradient(3, 0.5)
ALL = {
    **SOLVERS,
    "reversible": pg.Reversible(),
    "steps": pg.Steps(9),
    "max": pg.Anderson(norm="max"),
}


class Attention(nn.Module):
    """Self-attention with a key-padding mask, then LayerNorm: alone, padding never converges."""

    def __init__(self):
        super().__init__()
        self.maps, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, z, x, padding):
        q, k, v = self.maps(z).chunk(3, dim=-1)
        scores = (q @ k.mT).masked_fill(padding.unsqueeze(1), -torch.inf)
        # The odd sign makes rows without an injection oscillate.
        return self.norm(x - 0.3 * (scores.softmax(-1) @ v) - 0.2 * z)


def made(solver, gradient=UPG):
    torch.manual_seed(0)
    layer = pg.DEQ(Attention(), solver, gradient)
    layer.check_map = False
    return layer, [3 * torch.randn(1, n, WIDTH) for n in LENGTHS]


def padded(sequences, more=5):
    """One batch with zero tokens behind, and where the sequences are, ``(B, T, 1)``."""
    batch = torch.zeros(len(sequences), max(LENGTHS) + more, WIDTH)
    mask = torch.zeros(*batch.shape[:2], 1, dtype=torch.bool)
    for i, x in enumerate(sequences):
        batch[i, : x.shape[1]], mask[i, : x.shape[1]] = x[0], True
    return batch, mask


def none_of(x):
    return torch.zeros(x.shape[:2], dtype=torch.bool)


@pytest.mark.parametrize("solver", ALL.values(), ids=ALL)
def test_sequences_are_solved_as_they_are_alone(solver):
    layer, sequences = made(solver)
    x, mask = padded(sequences)
    z0 = torch.randn_like(x)  # padding counts no more if it starts elsewhere
    z, solution = layer(x, ~mask[..., 0], z0=z0, state_mask=mask)
    for i, alone in enumerate(sequences):
        n = alone.shape[1]
        expected, report = layer(alone, none_of(alone), z0=z0[i : i + 1, :n])
        torch.testing.assert_close(z[i : i + 1, :n], expected)
        assert solution.evaluations[i] == report.evaluations[0]
        assert solution.converged[i] == report.converged[0]
        torch.testing.assert_close(solution.residual[i], report.residual[0], rtol=1e-6, atol=0)
        assert not z[i, n:].any()
    assert solution.converged.all() or isinstance(solver, pg.Steps)


def test_without_the_mask_padding_decides():
    layer, sequences = made(pg.FixedPoint())
    x, mask = padded(sequences)
    assert not layer(x, ~mask[..., 0]).solution.converged.any()


@pytest.mark.parametrize("parts", ESTIMATORS.values(), ids=ESTIMATORS)
def test_sequences_have_the_gradients_that_they_have_alone(parts):
    layer, sequences = made(*parts)
    x, mask = padded(sequences)
    weights = list(layer.parameters())

    def gradients(x, padding, **keywords):
        z, _ = layer(x, padding, **keywords)
        return torch.autograd.grad((z + 1).square().sum(), weights)

    found = gradients(x, ~mask[..., 0], state_mask=mask)
    adjoint = layer.last_adjoint
    expected = [torch.zeros_like(w) for w in weights]
    for i, alone in enumerate(sequences):
        part = gradients(alone, none_of(alone))
        expected = [a + b for a, b in zip(expected, part, strict=True)]
        if adjoint is not None:
            assert abs(adjoint.evaluations[i] - layer.last_adjoint.evaluations[0]) <= 1
    assert relative_error(found, tuple(expected)) < 1e-7


def test_states_of_several_tensors_and_coupled_batches():
    """A mask for one state; a coupled batch with rows of padding."""
    x, z0 = torch.randn(3, 4), (torch.zeros(3, 4), torch.zeros(3, 2, 3))
    mask = torch.ones(1, 2, 1, dtype=torch.bool)
    mask[:, 1] = False
    (_, b), _ = pg.DEQ(CoupledCell(), pg.Anderson(), UPG)(x, z0=z0, state_mask=(None, mask))
    assert b[:, 0].all()
    assert not b[:, 1].any()
    rows = torch.tensor([[True], [True], [False]])
    layer = pg.DEQ(TanhCell(), pg.Anderson(), UPG, coupled=True)
    z, solution = layer(x, state_mask=rows)
    expected, report = layer(x[:2])
    torch.testing.assert_close(z[:2], expected)
    assert solution.evaluations == report.evaluations


def test_padding_that_is_nan_stops_no_sample():
    """A row of attention without any key is nan, in torch as well."""

    class Cell(nn.Module):
        def forward(self, z, x):
            return torch.tanh(0.5 * z + x)

    x = torch.randn(2, 3, 4)
    x[1, 2] = torch.nan
    mask = torch.tensor([[True, True, True], [True, True, False]]).unsqueeze(2)
    z, solution = pg.DEQ(Cell(), pg.Anderson(), UPG)(x, z0=torch.zeros(2, 3, 4), state_mask=mask)
    assert solution.converged.all()
    assert z.isfinite().all()
