"""The instruments of Theorem 1: closed forms, and products alone against written-out matrices."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from problems import Map, TanhCell, newton_equilibrium
from scipy.sparse.linalg import aslinearoperator
from torch import Tensor

from phantomgrad import (
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import normalized_adjacency, project_rows_onto_l1_ball
from phantomgrad.models.ignn import IGNNCell
from phantomgrad_suite.studies.conditions import Conditions, conditions, direction
from phantomgrad_suite.studies.factors import Dense, Factors, MatrixFree, Pullback
from phantomgrad_suite.studies.spectra import (
    SpectrumError,
    norm,
    singular_range,
    smallest_eigenvalue,
)

FORMS = (Dense, MatrixFree)
NPG, UPG = NeumannPhantomGradient, UnrolledPhantomGradient
Problem = tuple[Map, Tensor, list[Tensor]]


def diagonal(a: list[float], c: list[float]) -> Problem:
    """``f(h) = a h + c theta``: the matrices are diag(a) and diag(c)."""
    slopes, weights = torch.tensor(a), torch.tensor(c)
    theta = torch.ones(len(a), requires_grad=True)
    f: Map = lambda h: slopes * h + weights * theta  # noqa: E731
    return f, (weights / (1 - slopes)).unsqueeze(0), [theta]


def tanh_problem(by: str = "weight") -> Problem:
    """Two samples of width four, at their equilibria, or, of a rough solve, beside them."""
    cell, x = TanhCell(), torch.randn(2, 4, requires_grad=True)
    f: Map = lambda h: cell(h, x)  # noqa: E731
    wanted = {"weight": [cell.linear.weight], "input": [x], "both": [cell.linear.weight, x]}
    return f, newton_equilibrium(f, torch.zeros(2, 4)), wanted[by]


def graph_problem(by: str) -> Problem:
    """An IGNN layer: the state of a graph of five nodes is one sample, ``(1, 5, 3)``.

    Every unit is active, but for ``idle``: there some are not, and no wanted tensor moves them.
    """
    cell = IGNNCell(3)
    with torch.no_grad():
        cell.weight.copy_(project_rows_onto_l1_ball(torch.randn(3, 3), 0.9))
    edges = torch.tensor([[0, 1, 2, 3, 1, 2, 3, 4], [1, 2, 3, 4, 0, 1, 2, 3]])
    propagation = normalized_adjacency(edges, 5, dtype=torch.float64)
    injection = (torch.rand(5, 3) + (-0.5 if by == "idle" else 1.0)).requires_grad_()
    f: Map = lambda h: cell(h, injection, propagation)  # noqa: E731
    solution = FixedPoint(max_evaluations=2000, tol=1e-15).solve(f, torch.zeros(1, 5, 3))
    return f, solution.z, [cell.weight] if by == "weight" else [cell.weight, injection]


# Closed forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("estimator", [NPG, UPG])
def test_a_diagonal_map_has_closed_forms(form: type[Factors], estimator: Any) -> None:
    """``A (I - M) - G = -G B^k`` with ``B = 1 - lambda + lambda a``, all of it diagonal."""
    a, c, k, x = [0.8, -0.5, 0.2, 0.0], [1.0, 3.0, 2.0, 4.0], 3, 0.5
    found = conditions(form(*diagonal(a, c)), estimator(k, x))
    powers = [(1 - x + x * slope) ** k for slope in a]
    assert found.left == pytest.approx(max(g * b for g, b in zip(c, powers, strict=True)))
    assert found.reduced_left == pytest.approx(max(powers))
    assert (found.sigma_min, found.sigma_max) == pytest.approx((1.0, 4.0))
    assert found.right == pytest.approx(1 / 4)
    assert found.reduced_right == pytest.approx(1 / 16)
    margins = [g * g * (1 - b) for g, b in zip(c, powers, strict=True)]
    assert found.margin == pytest.approx(min(margins))
    assert found.obstacle is None


@pytest.mark.parametrize("form", FORMS)
def test_the_condition_holds_from_the_step_it_must(form: type[Factors]) -> None:
    """With a = 0.5 and a condition number of 2.1 the powers of 1/2 must get below 0.227."""
    factors = form(*diagonal([0.5, 0.5, 0.5], [1.0, 1.5, 2.1]))
    found = [conditions(factors, NPG(k, 1.0)) for k in (1, 2, 3)]
    assert [c.holds for c in found] == [False, False, True]
    assert [c.reduced_holds for c in found] == [False, False, True]


@pytest.mark.parametrize("form", FORMS)
def test_a_direction_that_descends_is_seen(form: type[Factors]) -> None:
    """For a = -1.5 the series without damping has the sum 1 - 1.5 < 0 after two terms."""
    factors = form(*diagonal([-1.5, 0.1, 0.1], [1.0, 1.0, 1.0]))
    found = conditions(factors, NPG(2, 1.0))
    assert not found.holds
    assert found.margin == pytest.approx(1 - 1.5**2)
    along = direction(factors, NPG(2, 1.0), torch.tensor([[1.0, 0.0, 0.0]]))
    assert not along.ascends
    assert along.inner == pytest.approx((1 - 1.5) / (1 + 1.5))
    assert along.cosine == pytest.approx(-1)
    assert direction(factors, NPG(2, 1.0), torch.tensor([[0.0, 1.0, 0.0]])).ascends
    assert conditions(factors, NPG(9, 0.5)).holds  # damping makes it a contraction


@pytest.mark.parametrize("form", FORMS)
def test_a_layout_that_is_not_symmetric(form: type[Factors]) -> None:
    """Matrices act on cotangents: of ``f = W h + C theta`` they are the transposes."""
    w, c = 0.4 * torch.randn(3, 3), torch.randn(3, 5)
    theta = torch.randn(5, requires_grad=True)
    factors = form(lambda h: h @ w.T + c @ theta, torch.randn(1, 3), [theta])
    v = np.arange(1.0, 4.0)
    np.testing.assert_allclose(factors.by_state @ v, w.numpy().T @ v)
    np.testing.assert_allclose(factors.by_wanted @ v, c.numpy().T @ v)
    np.testing.assert_allclose(factors.by_wanted.T @ np.ones(5), c.numpy() @ np.ones(5))
    exact = np.linalg.solve(np.eye(3) - w.numpy().T, v)
    np.testing.assert_allclose(factors.solve(v), exact, rtol=1e-9)


# Products alone against matrices -------------------------------------------------------------


PROBLEMS = [
    *((tanh_problem, by) for by in ("weight", "input", "both")),
    *((graph_problem, by) for by in ("weight", "both", "idle")),
]


@pytest.mark.parametrize("gradient", [NPG(1, 1.0), NPG(4, 0.6), UPG(4, 0.6)], ids=repr)
@pytest.mark.parametrize(("make", "by"), PROBLEMS)
def test_both_forms_agree(make: Any, by: str, gradient: GradientEstimator) -> None:
    """On every number, and on the direction of a loss."""
    f, z, wanted = make(by)
    dense, free = (form(f, z, wanted) for form in FORMS)
    ours, reference = (asdict(conditions(factors, gradient)) for factors in (free, dense))
    for name, value in reference.items():
        assert ours[name] == pytest.approx(value, rel=1e-8, abs=1e-10), name
    v = torch.randn_like(z)
    ours, reference = (asdict(direction(factors, gradient, v)) for factors in (free, dense))
    assert ours == pytest.approx(reference, rel=1e-8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gradient", [NPG(3, 0.5), UPG(3, 0.5)], ids=repr)
def test_the_matrix_is_the_gradient_that_the_estimator_gives(
    form: type[Factors], gradient: GradientEstimator
) -> None:
    """``A v`` is what autograd returns for the cotangent v, away from the equilibrium too."""
    f, z, wanted = tanh_problem("both")
    z = z + 0.1
    v = torch.randn_like(z)
    expected = torch.autograd.grad(gradient.attach(f, z), wanted, v)
    product = form(f, z, wanted).phantom(gradient) @ v.numpy().ravel()
    np.testing.assert_allclose(product, torch.cat([g.flatten() for g in expected]).numpy())


def test_unrolling_has_the_reduced_condition_at_an_equilibrium_alone() -> None:
    """Where its steps stay it is NPG; elsewhere there is no factor D, for NPG there is."""
    f, z, wanted = tanh_problem("both")
    at = Dense(f, z, wanted)
    ours, reference = (asdict(conditions(at, form(4, 0.6))) for form in (UPG, NPG))
    assert ours.pop("shape") == reference.pop("shape") == (24, 8)
    assert ours == pytest.approx(reference, rel=1e-8)
    beside = Dense(f, z + 0.1, wanted)
    found = conditions(beside, UPG(4, 0.6))
    assert found.reduced_left is None
    assert found.reduced_holds is None
    assert conditions(beside, NPG(4, 0.6)).reduced_left is not None


def test_the_bound_of_the_proof_and_the_remark_hold() -> None:
    """``margin >= sigma_min^2 - sigma_max left``, and ``left <= sigma_max reduced_left``."""
    for make, by in PROBLEMS:
        for k in (1, 2, 6):
            c = conditions(Dense(*make(by)), NPG(k, 0.7))
            assert c.margin >= c.sigma_min**2 - c.sigma_max * c.left - 1e-12
            assert c.reduced_left is not None
            assert c.left <= c.sigma_max * c.reduced_left + 1e-12


# Where the condition cannot hold ---------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_too_few_parameters_are_said_to_be(form: type[Factors]) -> None:
    """Nine weights, fifteen entries: no phantom gradient meets the condition, the exact neither."""
    found = conditions(form(*graph_problem("weight")), NPG(200, 1.0))
    assert found.sigma_min == found.right == found.reduced_right == 0
    assert not found.holds
    assert found.reduced_holds is False
    assert found.obstacle == (
        "sigma_min is 0: 9 wanted entries cannot tell 15 entries of the state apart, "
        "so the sufficient condition cannot hold"
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_deficient_rank_is_said_to_be(form: type[Factors]) -> None:
    """A unit that no wanted tensor reaches."""
    found = conditions(form(*diagonal([0.5, 0.5, 0.5], [1.0, 2.0, 0.0])), NPG(50, 1.0))
    assert (found.sigma_min, found.sigma_max) == pytest.approx((0.0, 2.0))
    assert "rank below 3" in str(found.obstacle)


@pytest.mark.parametrize("form", FORMS)
def test_a_map_that_ignores_state_and_parameters(form: type[Factors]) -> None:
    """All matrices are zero but the identity; nothing ascends, nothing divides by zero."""
    theta = torch.ones(3, requires_grad=True)
    factors = form(lambda h: torch.ones_like(h), torch.ones(1, 3), [theta])
    found = conditions(factors, NPG(2, 0.5))
    assert (found.left, found.sigma_max, found.right) == (0, 0, 0)
    assert found.reduced_left == pytest.approx(0.25)
    assert not found.holds
    along = direction(factors, NPG(2, 0.5), torch.ones(1, 3))
    assert math.isnan(along.cosine)
    assert not along.ascends


# Spectra and misuse ----------------------------------------------------------------------------


def test_lanczos_finds_what_svd_finds() -> None:
    """Sizes below and above what it keeps, wide and tall."""
    random = np.random.default_rng(0)
    for shape in ((1, 1), (2, 2), (5, 3), (90, 80), (300, 120), (3, 5)):
        matrix = random.standard_normal(shape)
        operator = aslinearoperator(matrix)
        assert norm(operator) == pytest.approx(norm(matrix), rel=1e-12)
        assert singular_range(operator) == pytest.approx(singular_range(matrix), rel=1e-8)
        square = matrix @ matrix.T - np.eye(shape[0])
        expected = smallest_eigenvalue(square)
        assert smallest_eigenvalue(aslinearoperator(square)) == pytest.approx(expected, rel=1e-9)


def test_lanczos_finds_a_smallest_value_behind_a_multiple_one() -> None:
    """As an IGNN layer with some idle units has it: zeros, ones, and few large values."""
    values = np.concatenate([np.zeros(20), np.ones(80), 500 + np.arange(8.0)])
    operator = aslinearoperator(np.diag(values))
    assert smallest_eigenvalue(operator) == pytest.approx(0, abs=1e-9)
    assert singular_range(operator) == (0.0, pytest.approx(507.0))
    assert singular_range(aslinearoperator(np.diag(values[20:])))[0] == pytest.approx(1.0)


def test_lanczos_says_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names the way out, not a wrong number."""
    monkeypatch.setattr("phantomgrad_suite.studies.spectra._MOST_VECTORS", 4)
    operator = aslinearoperator(np.diag(np.arange(9.0)))
    with pytest.raises(SpectrumError, match="the smallest eigenvalue of a matrix of size 9"):
        smallest_eigenvalue(operator)


def test_gmres_says_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "phantomgrad_suite.studies.factors.gmres", lambda *_, **__: (np.zeros(3), 7)
    )
    with pytest.raises(SpectrumError, match="GMRES did not solve the adjoint equation of size 3"):
        MatrixFree(*diagonal([0.5] * 3, [1.0] * 3)).solve(np.ones(3))


def test_a_tensor_that_is_not_on_the_graph_counts_for_nothing() -> None:
    used, unused = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
    pullback = Pullback(2 * used, [unused, used])
    assert pullback.shape == (5, 2)
    np.testing.assert_array_equal(pullback(np.ones(2)), [0, 0, 0, 2, 2])
    np.testing.assert_array_equal(pullback.transposed(np.arange(5.0)), [6, 8])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([], "wanted must name at least one tensor, got none"),
        ([torch.ones(2)], r"wanted\[0\] must require grad, got one \(2,\) that does not"),
    ],
)
def test_misuse_of_what_is_wanted(wanted: list[Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dense(torch.tanh, torch.zeros(1, 2), wanted)


def test_misuse_of_the_instruments() -> None:
    """An exact gradient has no matrix to judge; a cotangent has the size of the state."""
    factors = Dense(*diagonal([0.5] * 3, [1.0] * 3))
    with pytest.raises(TypeError, match="must be a phantom gradient, got ImplicitGradient"):
        conditions(factors, ImplicitGradient())
    with pytest.raises(ValueError, match="cotangent must have 3 entries like the state, got 2"):
        direction(factors, NPG(1, 1.0), torch.ones(2))


def test_a_condition_is_strict() -> None:
    """Equal sides are not enough."""
    base = {"reduced_left": 0.25, "sigma_max": 2.0, "margin": 0.0, "shape": (2, 2)}
    assert not Conditions(left=0.5, sigma_min=1.0, **base).holds
    assert not Conditions(left=0.5, sigma_min=1.0, **base).reduced_holds
    assert Conditions(left=0.4, sigma_min=1.0, **base).holds
