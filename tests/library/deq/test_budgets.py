"""Which solver a pass uses: that of training, of evaluation, or of the call."""

from dataclasses import replace

import pytest
import torch
from problems import TanhCell

import phantomgrad as pg

TRAINING = pg.FixedPoint(max_evaluations=6, tol=0)


def layer_with(eval_solver: pg.Solver | None = None) -> pg.DEQ:
    return pg.DEQ(TanhCell(), TRAINING, pg.UnrolledPhantomGradient(1, 1.0), eval_solver=eval_solver)


def spent(layer: pg.DEQ, **options: pg.Solver) -> int:
    return int(layer(torch.ones(2, 4), **options)[1].evaluations.max())


def test_modes_and_calls_have_budgets_of_their_own() -> None:
    layer = layer_with(replace(TRAINING, max_evaluations=9))
    assert spent(layer) == 6
    assert spent(layer.eval()) == 9
    assert spent(layer, solver=replace(TRAINING, max_evaluations=3)) == 3
    layer.eval_solver = None
    assert spent(layer) == 6


@pytest.mark.parametrize("wrong", [3, pg.FixedPoint])
def test_what_is_not_a_solver_is_refused(wrong: pg.Solver) -> None:
    with pytest.raises(TypeError, match="solver must be an object with a method solve"):
        layer_with(wrong)
    with pytest.raises(TypeError, match="solver must be an object with a method solve"):
        spent(layer_with(), solver=wrong)


def test_a_solver_that_cannot_be_recorded_is_refused_in_each_place() -> None:
    layer = pg.DEQ(TanhCell(), TRAINING, pg.BackpropThroughSolver())
    with pytest.raises(ValueError, match="needs a solver that autograd can record"):
        layer.eval_solver = pg.Broyden()
    with pytest.raises(ValueError, match="needs a solver that autograd can record"):
        spent(layer, solver=pg.Anderson())
    mixed = layer_with(pg.Broyden())
    with pytest.raises(ValueError, match="needs a solver that autograd can record"):
        mixed.gradient = pg.BackpropThroughSolver()
