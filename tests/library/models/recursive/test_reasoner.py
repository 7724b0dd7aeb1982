"""Recursive reasoners: unrolled steps, noise, starts, precision."""

import pytest
import torch
from small_models import ONE_STEP, puzzles, reasoner

import phantomgrad as pg
from phantomgrad.models import RecursiveReasoner

ROOT = 1 / 0.8796256610342398  # of the deviation before the cut to that after
every_map = pytest.mark.parametrize("n", [None, 1, 3], ids=["H", "G_1", "G_3"])


def gradients(model, loss):
    return list(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))


@every_map
@pytest.mark.parametrize("k", [1, 2, 4])
def test_upg_is_autograd_through_the_last_k_applications(k, n):
    model, tokens = reasoner(pg.UnrolledPhantomGradient(k, 1.0), pg.Steps(5 - k), n=n), puzzles()
    answer, state = model(tokens), model.start(tokens)
    for t in range(5):
        with torch.set_grad_enabled(t >= 5 - k):
            state = model.deq.cell(state, model.embed(tokens))
    logits = model.output(state if n is None else state[0])
    torch.testing.assert_close(answer.logits, logits)
    losses = [found.square().sum() for found in (answer.logits, logits)]
    torch.testing.assert_close(*(gradients(model, loss) for loss in losses))


@pytest.mark.parametrize("n", [None, 2])
def test_noise_is_drawn_once_in_a_pass_and_a_seed_repeats_it(n):
    model, tokens, drawn = reasoner(solver=pg.Steps(3), n=n, noise=0.1), puzzles(400), []
    model.deq.cell.register_forward_pre_hook(lambda _, inputs: drawn.append(inputs[2]))

    def answered(seed):
        return model(tokens, generator=torch.Generator().manual_seed(seed)).logits

    first = answered(1)
    assert all(noise is drawn[0] for noise in drawn)
    assert float(drawn[0].mean()) == pytest.approx(0, abs=1e-3)
    assert float(drawn[0].std()) == pytest.approx(0.1, rel=1e-2)
    assert torch.equal(answered(1), first)
    assert not torch.allclose(answered(2), first)
    model.eval()
    assert torch.equal(answered(1), first)


def test_initial_states_are_saved_and_not_trained():
    torch.manual_seed(1)
    model, other, tokens = reasoner(), reasoner(), puzzles()
    assert not torch.allclose(model.initial, other.initial)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens).logits, model(tokens).logits)
    assert "initial" not in dict(model.named_parameters())
    y, z = model.start(tokens)
    assert y.shape == z.shape == (3, 6, 8)
    assert torch.equal(y[2, 5], model.initial[0])
    assert torch.equal(z[1, 0], model.initial[1])


def test_random_starts_are_drawn_for_each_cell():
    model, tokens = reasoner(random_start=True), puzzles(500)

    def drawn(seed):
        return model.start(tokens, torch.Generator().manual_seed(seed))

    y, z = drawn(1)
    for state in (y, z):
        assert float(state.std()) == pytest.approx(1, rel=1e-2)
        assert float(state.abs().max()) <= 2 * ROOT
    assert not torch.equal(y, z)
    assert torch.equal(drawn(1)[0], y)
    assert not torch.equal(drawn(2)[0], y)
    assert not torch.equal(model(tokens).logits, model(tokens).logits)


@torch.no_grad()
def test_initial_weights():
    model = reasoner(width=64, n=6, multiple=256)
    for name, p in model.deq.named_parameters():
        assert float(p.std()) * p.shape[1] ** 0.5 == pytest.approx(1, rel=0.05), name
    fresh = RecursiveReasoner(11, 6, pg.Steps(2), ONE_STEP, width=64)
    tokens = puzzles()
    assert float(fresh.embed(tokens).std()) == pytest.approx(1, rel=0.2)
    assert torch.equal(fresh(tokens).halting, torch.full((3,), -5.0))


def test_low_precision_keeps_states_in_float32():
    model, tokens = reasoner().float(), puzzles()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = model(tokens)
    assert all(state.dtype == torch.float32 for state in answer.state)
    answer.logits.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.deq.parameters())


def test_gradients_of_single_puzzles_in_a_vmap():
    model, tokens = reasoner(gradient=ONE_STEP), puzzles()
    model.deq.check_map = False
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights, puzzle):
        answer = torch.func.functional_call(model, weights, (puzzle.unsqueeze(0),))
        return answer.logits.square().sum()

    ours = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, tokens)
    expected = gradients(model, model(tokens).logits.square().sum())
    torch.testing.assert_close([ours[name].sum(dim=0) for name in weights], expected)


def test_a_state_may_be_a_list_of_two():
    model, tokens = reasoner().eval(), puzzles()
    state = model(tokens).state
    assert torch.equal(model(tokens, list(state)).logits, model(tokens, state).logits)
