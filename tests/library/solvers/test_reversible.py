"""The reversible solver: its iterates, their reconstruction, and the gradient through them."""

import pytest
import torch
from golden.adjoint import V
from methods import reversible
from problems import Affine, GoldenCell, Parametric, TanhCell, golden_file, looped, relative_error

import phantomgrad as pg

GOLDEN = golden_file("reversible")


def golden_problem():
    cell = GoldenCell()
    tensors = (cell.weight, cell.input, cell.bias, cell.inputs)
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    f = lambda z, w, u, b, x: torch.tanh(z @ w.T + x @ u.T + b)  # noqa: E731
    return Parametric(f, *leaves), leaves


def parametric(affine, seen=lambda: None):
    def f(z, weight, bias):
        seen()
        return Affine(weight, bias)(z)

    return Parametric(f, affine.weight, affine.bias)


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
        assert solution.evaluations.tolist() == [budget] * 2
        states.append((solution.z.detach() - torch.tensor(case[name])).abs().max())
        gradients.append(torch.autograd.grad((V * solution.z).sum(), leaves))
    means = (sum(g) / len(solves) for g in zip(*gradients, strict=True))
    expected = (torch.tensor(case[f"grad_{name}"]) for name in "WUbx")
    errors = [(a - b).abs().max() for a, b in zip(means, expected, strict=True)]
    return float(max(states)), float(max(errors))


@pytest.mark.parametrize(
    "case", GOLDEN["reversible"], ids=lambda c: f"{c['beta']}-{c['N']}-{c['returned']}"
)
@pytest.mark.parametrize("settings", [{}, {"backward_tol": 1e-6}], ids=str)
def test_golden_states_and_gradients(case, settings):
    """Among them, those that a plain reconstruction misses by 1e-5 and 1e-2."""
    state, gradient = golden_error(case, **settings)
    assert state < 1e-14
    accurate = 1e-12 if case["N"] <= 4 else 1e-9
    assert gradient < (3e-6 if "backward_tol" in settings else accurate)


def test_a_linear_map_has_the_closed_form():
    affine = Affine.random(batch=2, size=3, norm=0.3)
    z = reversible(61, damping=0.8).solve(parametric(affine), affine.zeros).z
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
    weight, bias = cell.parameters()
    wanted = [x, z0, weight, bias]
    f = Parametric(lambda z, x, w, b: act(z @ w.mT + b + x), x, weight, bias)
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
    affine, calls = Affine.random(), []
    f = parametric(affine, lambda: calls.append(None))
    z = reversible(33, backward_tol=1e-6).solve(f, affine.zeros).z
    forward = len(calls)
    z.sum().backward()
    assert forward == 1 + 33  # the first one looks for tensors that f does not know
    assert len(calls) <= 1 + 33 + 32


def test_a_faded_cotangent_ends_the_backward_pass():
    affine, calls = Affine.random(norm=0.3), []
    f = parametric(affine, lambda: calls.append(None))
    z = pg.Reversible(max_evaluations=101, tol=0, backward_tol=1e-3).solve(f, affine.zeros).z
    ours = torch.autograd.grad(z.sum(), affine.bias)
    assert len(calls) < 130
    assert relative_error(ours, (affine.adjoint(torch.ones(3, 5)),)) < 2e-3


def test_samples_stop_alone_and_get_the_gradient_that_they_have_alone():
    slopes = torch.tensor([[0.1], [0.7], [-0.5]])
    v = torch.tensor([[1.0], [1e-3], [1e4]])
    scale = torch.ones(3, 1, requires_grad=True)

    def f(part):
        return Parametric(lambda z, s: torch.tanh(slopes[part] * s[part] * z + 1), scale)

    method = reversible(200, tol=1e-4)
    together = method.solve(f(slice(None)), torch.zeros(3, 1))
    assert len(set(together.evaluations.tolist())) == 3
    assert together.converged.all()
    (ours,) = torch.autograd.grad(together.z, scale, v)
    for i in range(3):
        part = slice(i, i + 1)
        alone = method.solve(f(part), torch.zeros(1, 1))
        assert torch.equal(alone.z, together.z[part])
        (theirs,) = torch.autograd.grad(alone.z, scale, v[part])
        torch.testing.assert_close(ours[part], theirs[part], rtol=1e-12, atol=0)


def test_a_map_whose_tensors_are_unknown_is_refused():
    affine = Affine.random()
    with pytest.raises(TypeError, match="the map of a DEQ, whose tensors it knows, got Affine"):
        pg.Reversible().solve(affine, affine.zeros)
    with pytest.raises(ValueError, match="neither a parameter of the cell nor an input"):
        pg.Reversible().solve(Parametric(lambda z: affine(z)), affine.zeros)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_equilibrium_at_zero(dtype):
    slope = torch.full((2, 1), 0.5, dtype=dtype, requires_grad=True)
    z0 = torch.ones(2, 1, dtype=dtype)
    f = Parametric(lambda z, s: s * z, slope)
    solution = pg.Reversible(max_evaluations=400).solve(f, z0)
    assert solution.converged.all()
    (gradient,) = torch.autograd.grad(solution.z.sum(), slope)
    assert gradient.abs().max() < 1e-9


def test_a_cotangent_that_is_not_finite_changes_no_other():
    slope = torch.full((3, 1), 0.5, requires_grad=True)
    f = Parametric(lambda z, s: torch.tanh(s * z + 1), slope)
    z = reversible(20).solve(f, torch.zeros(3, 1)).z
    v = torch.tensor([[1.0], [torch.nan], [1.0]])
    (gradient,) = torch.autograd.grad(z, slope, v, retain_graph=True)
    (expected,) = torch.autograd.grad(z, slope, torch.ones(3, 1))
    assert gradient.isnan().squeeze(1).tolist() == [False, True, False]
    assert torch.equal(gradient[::2], expected[::2])
