"""The bench of gradients: against closed forms of a linear map; no time is tested."""

import pytest
import torch

from phantomgrad import Broyden
from phantomgrad_suite.studies import GradientBench
from phantomgrad_suite.studies.base import truncated_series
from phantomgrad_suite.studies.meters import Clock

CPU = torch.device("cpu")
SOLVER = Broyden(max_evaluations=60, tol=1e-10)
SIZE = {"size": 6, "batch": 3, "nonlinearity": "linear", "lipschitz": 0.8}


def bench(**changes):
    return GradientBench(**{**SIZE, "solver": SOLVER, "repeats": 1, **changes})


def test_cosines_are_those_of_the_dense_jacobian(monkeypatch):
    """For F = W (h + u) the exact gradient by u is W (I - W)^-1 v, and W is symmetric."""
    monkeypatch.setattr(Clock, "time", lambda self, call: 0.5)
    monkeypatch.setattr("phantomgrad_suite.studies.gradients.peak_bytes", lambda run, device: 640)
    study = bench(products=6, tolerances=(1e-10,))
    with study.layers(0, CPU) as ((f, v, _, _),):
        w = f.cell.weight.double()
    exact = v @ torch.linalg.inv(torch.eye(6) - w) @ w
    findings = study.measure(0, CPU)
    rows = {row["name"]: row for row in findings.numbers["estimators"]}
    for damping in study.dampings:
        for k, series in truncated_series(w.numpy(), damping, study.steps).items():
            g = v @ torch.from_numpy(series) @ w
            cosine = torch.cosine_similarity(g.flatten(), exact.flatten(), dim=0).item()
            ratio = (g.norm() / exact.norm()).item()
            for row in (rows[f"{form} A({k}, {damping:g})"] for form in ("UPG", "NPG")):
                assert (row["cosine"], row["norm_ratio"]) == pytest.approx(
                    (cosine, ratio), abs=1e-5
                )
                assert row["products"] == [k]
    # W has six eigenvalues: six products solve the adjoint equation, and one more is by u.
    krylov = [rows[f"{name}, GMRES(6)"] for name in ("Implicit", "Preconditioned")]
    assert [row["products"] for row in krylov] == [[7], [7]]
    others = [rows[name] for name in ("Implicit, tol = 1e-10", "BPTT", "Reversible BPTT")]
    assert [row["cosine"] for row in (*krylov, *others)] == pytest.approx([1] * 5, abs=1e-6)
    assert rows["One step"]["products"] == [1]
    assert rows["NPG, k = 5, adaptive λ"]["products"] == [5]  # those of its radius do not count
    assert {(row["seconds"], row["peak_bytes"]) for row in rows.values()} == {(0.5, 640)}
    assert [check.holds for check in findings.checks] == [True]


def test_layers_of_a_released_model_have_their_cotangents(float32):
    """A layer for each pass; the exact gradient is that of the loss, so it is not zero."""
    study = bench(model="digits/upg_k5_d0.5/seed0", solver=Broyden(max_evaluations=40, tol=1e-3))
    with study.layers(0, CPU) as (layer,):
        assert layer.v.shape == (64, 16, 8, 8)
        assert bool(layer.v.any())
        assert layer.solution.inverse is not None
        assert len(layer.wanted) == 6
