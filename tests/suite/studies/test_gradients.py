"""The bench of gradients: against closed forms of a linear map; nothing is timed here."""

from contextlib import ExitStack
from typing import Any

import pytest
import torch

from phantomgrad import Anderson, Broyden
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.studies import GradientBench
from phantomgrad_suite.studies.base import truncated_series
from phantomgrad_suite.studies.gradients import Layer

CPU = torch.device("cpu")
SOLVER = Broyden(max_evaluations=60, tol=1e-10)
SIZE: dict[str, Any] = {"size": 6, "batch": 3, "nonlinearity": "linear", "lipschitz": 0.8}


def bench(**changes: Any) -> GradientBench:
    return GradientBench(**{**SIZE, "solver": SOLVER, "repeats": 1, **changes})


def test_cosines_are_those_of_the_dense_jacobian() -> None:
    """For F = W (h + u) the exact gradient by u is W (I - W)^-1 v, and W is symmetric."""
    study = bench(products=6, tolerances=(1e-10,))
    f, v, (u,) = study._drawn(0, CPU)
    w = f.func.weight.double()  # type: ignore[attr-defined]
    exact = v.double() @ torch.linalg.inv(torch.eye(6) - w) @ w
    rows = {row["name"]: row for row in study.measure(0, CPU).numbers["estimators"]}
    for damping in study.dampings:
        for k, series in truncated_series(w.numpy(), damping, study.steps).items():
            g = v.double() @ torch.from_numpy(series) @ w
            cosine = torch.cosine_similarity(g.flatten(), exact.flatten(), dim=0).item()
            for form in ("UPG", "NPG"):
                row = rows[f"{form} A({k}, {damping:g})"]
                assert row["cosine"] == pytest.approx(cosine, abs=1e-5)
                assert row["norm_ratio"] == pytest.approx(
                    (g.norm() / exact.norm()).item(), abs=1e-4
                )
                assert row["products"] == [k]
    for name in ("Implicit, tol = 1e-10", "Implicit, GMRES(6)", "BPTT", "Reversible BPTT"):
        assert rows[name]["cosine"] == pytest.approx(1, abs=1e-6)
    # W has six eigenvalues: six products solve the adjoint equation, and one more is by u.
    assert rows["Implicit, GMRES(6)"]["products"] == rows["Preconditioned, GMRES(6)"]["products"]
    assert rows["Implicit, GMRES(6)"]["products"] == [7]
    assert rows["One step"]["products"] == [1]
    assert u.grad is None


def test_every_estimator_of_the_issue_is_on_the_bench() -> None:
    names = list(bench().estimators())
    assert names == [
        *(f"Implicit, tol = {tol}" for tol in ("1e-06", "0.01", "0.1", "0.3")),
        *("Implicit, GMRES(5)", "Preconditioned, GMRES(5)"),
        *(
            f"{form} A({k}, {d})"
            for form in ("UPG", "NPG")
            for d in ("0.5", "1")
            for k in (2, 5, 9)
        ),
        *("NPG, k = 5, adaptive λ", "One step", "BPTT", "Reversible BPTT"),
    ]


def test_the_preconditioned_estimator_needs_the_inverse_of_broyden() -> None:
    study = bench(solver=Anderson(max_evaluations=40))
    with pytest.raises(ValueError, match="needs the solver Broyden, got Anderson"):
        study.measure(0, CPU)


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(UserError, match="model must be row and instance"):
        bench(model="digits/none/seed0").measure(0, CPU)


def test_layers_of_a_released_model_have_their_cotangents() -> None:
    """A layer for each pass; the exact gradient is that of the loss, so it is not zero."""
    torch.set_default_dtype(torch.float32)  # that of the data
    study = bench(model="digits/upg_k5_d0.5/seed0")
    with ExitStack() as stack:
        ((f, v, wanted),) = study._trained(0, CPU, stack)
        layer = Layer.solved(f, v, wanted, Broyden(max_evaluations=40, tol=1e-3))
        assert layer.v.shape == (64, 16, 8, 8)
        assert bool(layer.v.any())
        assert layer.solution.inverse is not None
        assert len(wanted) == 6
