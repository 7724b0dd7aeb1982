"""The language cases of the benchmark: all sides do the same work. Nothing here is timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from bench.sides import CPU, needs_peer
from torch import Tensor

from phantomgrad import Broyden, ImplicitGradient
from phantomgrad_suite.bench.contest import EACH_TIME, HOISTED, IMPLICIT, OURS, PEER
from phantomgrad_suite.bench.language import (
    EvaluationCase,
    LanguageCase,
    WholeCell,
    language_cases,
)
from phantomgrad_suite.studies.clock import Clock

Cases = tuple[LanguageCase, LanguageCase, EvaluationCase]


@pytest.fixture
def language() -> Cases:
    """Two streams of three words."""
    implicit, phantom, evaluation = language_cases(batch=2, length=3)
    assert isinstance(implicit, LanguageCase)
    assert isinstance(phantom, LanguageCase)
    assert isinstance(evaluation, EvaluationCase)
    return implicit, phantom, evaluation


def gradients_of(case: LanguageCase, contender: str) -> dict[str, Tensor]:
    """A step with larger weights, at which the solvers converge; the same masks for everyone."""
    model, _, loss = case.step(CPU, case.layers()[contender])
    with torch.no_grad():
        for name, parameter in model.deq.named_parameters():  # type: ignore[union-attr, operator]
            if name.endswith("original0"):
                parameter.mul_(2)
    torch.manual_seed(1)
    loss().backward()
    return {
        name.replace("cell.cell.", "cell."): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def solved(case: LanguageCase) -> LanguageCase:
    """The case with budgets to solve the equation and its adjoint."""
    solver = Broyden(max_evaluations=200, tol=1e-11)
    implicit = ImplicitGradient(solver=solver)
    if case.implicit is None:
        return replace(case, solver=solver, gradient=implicit)
    return replace(case, solver=solver, implicit=implicit)


@needs_peer
@pytest.mark.parametrize("which", [0, 1], ids=["implicit", "UPG"])
@pytest.mark.parametrize("contender", [PEER, HOISTED])
def test_language_sides_compute_the_same_gradients(
    language: Cases, which: int, contender: str
) -> None:
    """Of every parameter, embedding and softmax included, whoever computes the constants."""
    case = solved(language[which])  # type: ignore[arg-type]
    ours, theirs = gradients_of(case, OURS), gradients_of(case, contender)
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        error = torch.linalg.vector_norm(theirs[name] - gradient)
        assert error <= 1e-4 * torch.linalg.vector_norm(gradient), name


def test_the_implicit_contender_is_that_of_the_other_case(
    language: Cases,
) -> None:
    """So UPG is compared with it round by round; it is nobody's rival where it is ours."""
    implicit, phantom, _ = language
    assert IMPLICIT not in implicit.layers()
    expected, found = gradients_of(implicit, OURS), gradients_of(phantom, IMPLICIT)
    assert all(torch.equal(found[name], gradient) for name, gradient in expected.items())
    assert any(not torch.equal(gradients_of(phantom, OURS)[n], g) for n, g in expected.items())


def test_a_cell_with_everything_in_it_is_the_same_map(
    language: Cases,
) -> None:
    """In value and gradient; and it is the one that computes the constants at every evaluation."""
    *_, evaluation = language
    found = []
    for whole in (False, True):
        cell, state, inputs = evaluation.evaluation(CPU, whole=whole)
        assert isinstance(cell, WholeCell) is whole
        cell.eval()
        value = cell(state, inputs)
        found.append((value, *torch.autograd.grad(value, state, torch.ones_like(value))))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_the_constants_are_leaves_where_they_are_computed_once(
    language: Cases,
) -> None:
    """So both sides have a gradient of the injection, and neither pays for the other's graph."""
    *_, evaluation = language
    _, _, context = evaluation.evaluation(CPU, whole=False)
    _, _, (injection, distances, memory) = evaluation.evaluation(CPU, whole=True)
    assert [t.requires_grad for t in context] == [True, True, True, True, False]
    assert all(t.is_leaf for t in (*context, injection))
    assert torch.equal(context.injection, injection)
    assert [t.requires_grad for t in (injection, distances, *memory)] == [True, *[False] * 3]


@needs_peer
def test_a_step_of_the_language_model_spends_the_same_budget_on_all_sides() -> None:
    """30 steps of Broyden, then five recorded; the peer's adjoint evaluates f once more."""
    implicit, phantom, evaluation = language_cases(batch=1, length=2)
    for case, expected in (
        (implicit, {OURS: 31 + 1, PEER: 31 + 2, HOISTED: 31 + 2}),
        (phantom, {OURS: 31 + 5, PEER: 31 + 5, HOISTED: 31 + 5, IMPLICIT: 31 + 1}),
        (evaluation, {OURS: 16, EACH_TIME: 16}),
    ):
        runs = {n: run(Clock(CPU)) for n, run in case.contenders(CPU, with_peer=True).items()}
        assert {n: run.evaluations for n, run in runs.items()} == expected
    assert set(phantom.contenders(CPU, with_peer=False)) == {OURS, IMPLICIT}
