"""The network and the recursion as cells: steps, graphs, positions."""

import pytest
import torch
import torch.nn.functional as F
from small_models import puzzles, reasoner
from torch.nn.attention import SDPBackend, sdpa_kernel

import phantomgrad as pg
from phantomgrad.models import RecursiveCell, RecursiveNetwork
from phantomgrad.models.recursive import rotated, truncated_normal_

every_mixer = pytest.mark.parametrize("mixer", ["mlp", "attention"])


@pytest.mark.parametrize(("networks", "recorded"), [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)])
def test_recursion_with_damping_and_noise(recorded, networks):
    low, *high = (RecursiveNetwork(8, 6, multiple=4, damping=0.9) for _ in range(networks))
    cell = RecursiveCell(low, 2, recorded, *high)
    x, y, z, *noise = torch.randn(6, 2, 6, 8)
    x.requires_grad_()

    def step(h, c, e, network=low):
        return 0.1 * h + 0.9 * network.blocks(h + c) + e

    a = step(z, y + x, noise[0])
    a = step(a.detach() if recorded < 3 else a, y + x, noise[1])
    a = a.detach() if recorded < 2 else a
    expected = step(y, a, noise[2], *high)
    ours, latent = cell((y, z), x, torch.stack(noise))
    torch.testing.assert_close((ours, latent), (expected, a))
    wanted = [x, *cell.parameters()]
    gradients = [
        torch.autograd.grad(found.square().sum(), wanted, materialize_grads=True)
        for found in (ours, expected)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    "gradient",
    [
        pg.NeumannPhantomGradient(1, 1.0),
        pg.ImplicitGradient(solver=pg.Anderson()),
        pg.UnrolledPhantomGradient(2, 1.0),
        pg.BackpropThroughSolver(),
    ],
    ids=lambda gradient: type(gradient).__name__,
)
def test_partly_recorded_recursions_refuse_a_gradient_that_would_be_wrong(gradient):
    model, tokens = reasoner(gradient, recorded=2), puzzles()
    with pytest.raises(ValueError, match=r"recorded must be n \+ 1 = 3 for a gradient.*got 2"):
        model(tokens)
    x, start = model.embed(tokens).detach(), model.start(tokens)
    f, z = model.deq.close_over((x,), start)
    with pytest.raises(ValueError, match="recorded must be"):
        pg.spectral_radius(f, z)
    with torch.no_grad():
        model(tokens)


@every_mixer
def test_positions_are_seen_in_order(mixer):
    model, tokens = reasoner(mixer=mixer).eval(), puzzles(3)
    logits = model(tokens).logits
    assert not torch.allclose(model(tokens.flip(1)).logits.flip(1), logits)


def test_rotary_embedding_keeps_norms_and_knows_distances_alone():
    q, k = torch.randn(2, 4, 8)
    later = [rotated(F.pad(t, (0, 0, 3, 0)))[3:] for t in (q, k)]  # at positions 3 to 6
    scores = rotated(q) @ rotated(k).mT
    torch.testing.assert_close(later[0] @ later[1].mT, scores)
    torch.testing.assert_close(rotated(q).norm(dim=1), q.norm(dim=1))
    assert not torch.allclose(scores, q @ k.mT)


def test_attention_takes_longer_puzzles_than_it_was_built_for():
    model = reasoner(mixer="attention")
    assert model(puzzles(2, 9)).logits.shape == (2, 9, 5)


def test_truncated_normal_has_the_deviation_asked_for():
    sample = truncated_normal_(torch.empty(200_000), 0.5)
    assert float(sample.std()) == pytest.approx(0.5, rel=5e-3)
    assert float(sample.abs().max()) == pytest.approx(0.5 * 2.273694468677113, rel=1e-3)


@every_mixer
def test_jacobian_can_be_penalised(mixer):
    model, tokens = reasoner(mixer=mixer, n=1), puzzles()
    f, z = model.deq.close_over((model.embed(tokens),), model.start(tokens))
    with sdpa_kernel(SDPBackend.MATH):
        penalty = pg.jacobian_regularizer(f, z)
        (gradient,) = torch.autograd.grad(penalty, [model.embedding.weight])
    assert gradient.any()
    assert gradient.isfinite().all()
