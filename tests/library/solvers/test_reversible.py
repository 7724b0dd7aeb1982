"""The reversible solver: its iterates, their reconstruction, and the gradient through them."""

import json
from pathlib import Path

import pytest
import torch
from methods import reversible
from problems import Affine, Counted, TanhCell, looped, relative_error

import phantomgrad as pg

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "reversible.json").read_text())
INPUTS = {name: torch.tensor(v, dtype=torch.float64) for name, v in GOLDEN["inputs"].items()}


def golden_problem():
    leaves = [INPUTS[name].clone().requires_grad_() for name in "WUbx"]
    w, u, b, x = leaves
    return lambda z: torch.tanh(z @ w.T + x @ u.T + b), leaves


def golden_error(case, **settings):
    """The largest errors of states and gradients; the mean of y and z is that of two solves."""
    evaluations = 2 * case["N"] + 1
    solves = [("z_N", evaluations)]
    if case["returned"] == "mean":
        solves.append(("y_N", evaluations - 1))
    states, gradients = [], []
    for name, budget in solves:
        f, leaves = golden_problem()
        solution = reversible(budget, case["beta"], **settings).solve(f, torch.zeros(2, 5))
        assert solution.iterations.tolist() == [budget - 1] * 2
        states.append((solution.z.detach() - torch.tensor(case[name])).abs().max())
        gradients.append(torch.autograd.grad((INPUTS["v"] * solution.z).sum(), leaves))
    means = (sum(g) / len(solves) for g in zip(*gradients, strict=True))
    expected = (torch.tensor(case[f"grad_{name}"]) for name in "WUbx")
    errors = [(a - b).abs().max() for a, b in zip(means, expected, strict=True)]
    return float(max(states)), float(max(errors))


@pytest.mark.parametrize(
    "case", GOLDEN["reversible"], ids=lambda c: f"{c['beta']}-{c['N']}-{c['returned']}"
)
@pytest.mark.parametrize(
    "settings", [{}, {"checkpoint_every": 16}, {"backward_tol": 1e-6}], ids=str
)
def test_golden_states_and_gradients(case, settings):
    """Among them, those that a plain reconstruction misses by 1e-5 and 1e-2."""
    state, gradient = golden_error(case, **settings)
    assert state < 1e-14
    accurate = 1e-12 if case["N"] <= 4 else 1e-9
    assert gradient < (3e-6 if "backward_tol" in settings else accurate)


def test_a_linear_map_has_the_closed_form():
    affine = Affine.random(batch=2, size=3, norm=0.3)
    z = reversible(61, damping=0.8).solve(affine, affine.zeros).z
    torch.testing.assert_close(z, affine.equilibrium(), rtol=0, atol=1e-10)
    v = torch.randn(2, 3)
    ours = torch.autograd.grad(z, [affine.weight, affine.bias], v)
    assert relative_error(ours, affine.exact_gradient(v)) < 1e-10


@pytest.mark.parametrize("norm", [0.9, 1.4], ids=["contraction", "no contraction"])
@pytest.mark.parametrize("damping", [0.2, 0.5, 0.8, 1.2, 1.9])
@pytest.mark.parametrize("relu", [False, True], ids=["tanh", "relu"])
def test_the_gradient_is_that_of_a_loop(norm, damping, relu):
    """Also where cotangents do not fade, and garbage would saturate tanh and hide itself."""
    cell, evaluations = TanhCell(8, norm), 41 if norm < 1 else 22
    act = torch.relu if relu else torch.tanh
    x, z0 = (torch.randn(3, 8, requires_grad=True) for _ in range(2))
    wanted = [x, z0, *cell.parameters()]
    f = lambda z: act(cell.linear(z) + x)  # noqa: E731
    solution = reversible(evaluations, damping).solve(f, z0)
    loss = looped(f, z0, solution.z.detach(), evaluations, damping).square().sum()
    ours = torch.autograd.grad(solution.z.square().sum(), wanted)
    assert relative_error(ours, torch.autograd.grad(loss, wanted)) < 1e-9


@pytest.mark.parametrize(
    ("dtype", "wide", "iterates"),
    [(torch.float32, torch.float64, 46), (torch.bfloat16, torch.float32, 26)],
    ids=str,
)
def test_damping_of_a_half_is_inverted_bit_for_bit(dtype, wide, iterates):
    cell, solver = TanhCell(16, norm=0.2).to(dtype), pg.Reversible()
    x = (2 + torch.rand(3, 16)).to(dtype)  # numbers near zero would have finer last digits
    f = lambda z: cell(z.to(dtype), x).detach().to(wide)  # noqa: E731
    forward = [torch.zeros(3, 16, dtype=wide)] * 2
    for _ in range(iterates):
        forward.append(solver.step(forward[-2], f(forward[-1])))
    after, at = forward[-1], forward[-2]
    for expected in forward[-3::-1]:
        after, at = at, solver.inverse_step(after, f(at))
        assert torch.equal(at, expected)


def test_an_accurate_backward_pass_repeats_each_evaluation_once():
    cell, x = TanhCell(16).float(), torch.randn(3, 16, dtype=torch.float32)
    f = Counted(lambda z: cell(z, x))
    z = reversible(33, backward_tol=1e-6).solve(f, torch.zeros(3, 16, dtype=torch.float32)).z
    forward = f.calls
    z.sum().backward()
    assert forward == 33
    assert f.calls <= 33 + 32


def test_a_faded_cotangent_ends_the_backward_pass():
    affine = Affine.random(norm=0.3)
    f = Counted(affine)
    z = pg.Reversible(max_evaluations=101, tol=0, backward_tol=1e-3).solve(f, affine.zeros).z
    ours = torch.autograd.grad(z.sum(), affine.bias)
    assert f.calls < 130
    assert relative_error(ours, (affine.adjoint(torch.ones(3, 5)),)) < 2e-3


def test_samples_stop_alone_and_get_the_gradient_that_they_have_alone():
    slopes = torch.tensor([[0.1], [0.7], [-0.5]])
    v = torch.tensor([[1.0], [1e-3], [1e4]])
    scale = torch.ones(3, 1, requires_grad=True)
    f = lambda z, part=slice(None): torch.tanh(slopes[part] * scale[part] * z + 1)  # noqa: E731
    method = reversible(200, tol=1e-4)
    together = method.solve(f, torch.zeros(3, 1))
    assert len(set(together.evaluations.tolist())) == 3
    assert together.converged.all()
    (ours,) = torch.autograd.grad(together.z, scale, v)
    for i in range(3):
        part = slice(i, i + 1)
        alone = method.solve(lambda z, p=part: f(z, p), torch.zeros(1, 1))
        assert torch.equal(alone.z, together.z[part])
        (theirs,) = torch.autograd.grad(alone.z, scale, v[part])
        torch.testing.assert_close(ours[part], theirs[part], rtol=1e-12, atol=0)


def test_a_cotangent_that_is_not_finite_changes_no_other():
    slope = torch.full((3, 1), 0.5, requires_grad=True)
    z = reversible(20).solve(lambda z: torch.tanh(slope * z + 1), torch.zeros(3, 1)).z
    v = torch.tensor([[1.0], [torch.nan], [1.0]])
    (gradient,) = torch.autograd.grad(z, slope, v, retain_graph=True)
    (expected,) = torch.autograd.grad(z, slope, torch.ones(3, 1))
    assert gradient.isnan().squeeze(1).tolist() == [False, True, False]
    assert torch.equal(gradient[::2], expected[::2])
