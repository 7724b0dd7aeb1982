"""Figure 4: the exact solution, the paths of the solvers, and what is measured along them."""

import math

import pytest
import torch
from problems import Affine

from phantomgrad.jacobian import Linearization
from phantomgrad_suite.studies import Dynamics
from phantomgrad_suite.studies.figure4 import (
    SHARES,
    conclusions,
    measured,
    neumann_path,
    quantiles,
    unrolled_path,
)
from phantomgrad_suite.studies.synthetic import SyntheticCell

CPU = torch.device("cpu")
SIZES = {"size": 8, "rows": 2, "samples": 3, "iterations": 40, "forward_iterations": 3000}


def test_levels_of_a_linear_map_have_a_closed_form():
    """The condition of ``I - W`` from eigenvalues, the exact norm from the inverse, no residual.

    Broyden, with more iterations than the system has dimensions, reaches the exact solution.
    """
    findings = Dynamics(nonlinearity="linear", lipschitz=[0.9, 0.99], **SIZES).measure(0, CPU)
    for level in findings.numbers["levels"]:
        generator = torch.Generator().manual_seed(0)
        w = SyntheticCell(8, level["lipschitz"], "linear", generator).weight
        u, y = torch.randn(2, 3, 2, 8, generator=generator)
        inverse = torch.linalg.inv(torch.eye(8) - w)
        v = 2 * (u @ inverse @ w - y) / 16
        away = (1 - torch.linalg.eigvalsh(w)).abs()
        assert level["residual"] < 1e-12
        assert level["condition"] == pytest.approx(float(away.max() / away.min()), rel=1e-9)
        expected = quantiles((v @ inverse).abs().sum(dim=(1, 2)))
        assert level["l1_norm"] == pytest.approx(expected, rel=1e-5)
        names = [(m["name"], m["damping"]) for m in level["methods"]]
        phantoms = [(name, d) for d in (0.5, 1.0) for name in ("NPG", "UPG")]
        assert names == [("Broyden", None), *phantoms]
        assert [len(m["objective"]) for m in level["methods"]] == [41, 40, 40, 40, 40]
        broyden = level["methods"][0]
        assert broyden["cosine"][-1] == [1.0] * 5
        assert broyden["relative_error"][-1][-1] < 1e-10
        assert broyden["l1_norm"][-1] == pytest.approx(expected, rel=1e-5)


def test_phantom_paths_are_sums_of_dense_powers():
    """Both forms are ``lambda (I + B + ... + B^(k-1)) v``, since the map is linear."""
    affine, v, damping = Affine.random(), torch.randn(3, 5), 0.4
    b = damping * affine.weight.mT + (1 - damping) * torch.eye(5)
    terms = [torch.linalg.matrix_power(b, t) @ v.unsqueeze(2) for t in range(4)]
    expected = damping * torch.stack(terms).cumsum(dim=0).squeeze(3)
    z = affine.equilibrium()
    neumann = list(neumann_path(Linearization(affine, z).vjp, v, 4, damping))
    unrolled = list(unrolled_path(affine, z, v, 4, damping))
    torch.testing.assert_close(torch.stack(neumann), expected)
    torch.testing.assert_close(torch.stack(unrolled), expected)


def test_quantities_at_known_vectors():
    """For ``J = diag(1/2, 0)``, ``v = (1, 1)``: ``g = (2, 1)``, and everything at ``(3, -4)``."""
    exact, diagonal = torch.tensor([[2.0, 1.0]]), torch.tensor([0.5, 0.0])
    found = measured([torch.tensor([[3.0, -4.0]]), exact], lambda g: diagonal * g + 1, exact)
    objective = math.hypot(3 / 2 - 1, -4 - 1)
    assert found["objective"] == [[pytest.approx(objective, rel=1e-5)] * 5, [0.0] * 5]
    assert found["relative_error"][0] == [pytest.approx(objective / 5, rel=1e-5)] * 5
    assert found["cosine"] == [[pytest.approx(2 / (5 * 5**0.5), rel=1e-5)] * 5, [1.0] * 5]
    assert found["l1_norm"] == [[7.0] * 5, [3.0] * 5]
    assert quantiles(torch.arange(101.0)) == [100 * share for share in SHARES]
    assert quantiles(torch.tensor([1.0, math.nan]))[0] != 1.0  # nan counts as large


def level(lipschitz, **medians):
    """A level whose Broyden has these objectives, norms and low cosines, and one phantom path."""
    good = {"objective": [1.0, 50.0], "l1_norm": [1.0, 400.0], "cosine": [0.9, -0.5]}
    broyden = {name: [[x] * 5 for x in values] for name, values in (good | medians).items()}
    objective = [[x] * 5 for x in medians.get("phantom", [1.0, 0.5])]
    phantom = {"objective": objective, "l1_norm": [[1.0] * 5, [2.0] * 5]}
    return {"lipschitz": lipschitz, "methods": [broyden, phantom]}


@pytest.mark.parametrize(
    ("medians", "failed"),
    [
        ({}, []),
        ({"phantom": [1.0, 1.1]}, [0]),
        ({"objective": [1.0, 5.0]}, [1]),
        ({"l1_norm": [1.0, 10.0]}, [2]),
        ({"cosine": [0.9, 0.95, 0.94]}, [3]),
    ],
)
def test_conclusions_are_about_the_worst_level(medians, failed):
    """Each of them can fail; at a good condition number only the first one is expected."""
    levels = [level(0.9999, **medians), level(0.9, objective=[1.0, 1.0])]
    checks = conclusions(levels, ill_conditioned=True)
    assert [i for i, check in enumerate(checks) if not check.holds] == failed
    if not medians:
        assert [check.value for check in checks] == pytest.approx([1.0, 50.0, 200.0, 1.4])
    assert conclusions(levels, ill_conditioned=False) == checks[:1]
