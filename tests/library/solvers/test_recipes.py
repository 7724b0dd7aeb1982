"""The code of docs/library.md and the solvers of docs/recipes.md."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from problems import GoldenCell, TanhCell, golden_file
from torch import nn

import phantomgrad as pg

DOCS = Path(__file__).parents[3] / "docs"
PAGE = "".join((DOCS / name).read_text() for name in ("library.md", "recipes.md"))
GOLDEN = golden_file("solvers_beyond")
ONE = pg.UnrolledPhantomGradient(1, 1.0)


def names_of(title, **names):
    """Execute the first block of Python under a heading with the given names; return all."""
    _, section = PAGE.split(f"# {title}\n")
    (code, *_) = re.findall(r"```python\n(.*?)```", section.split("\n#")[0], re.DOTALL)
    names["__name__"] = __name__  # dataclasses look for their module
    exec(compile(code, title, "exec"), names)
    return names


def test_intermediate_states():
    layer, head = pg.DEQ(TanhCell(), pg.Anderson(), ONE), nn.Linear(4, 2)
    given = {
        "layer": layer,
        "head": head,
        "x": torch.randn(3, 4),
        "labels": torch.tensor([0, 1, 0]),
    }
    names = names_of("Intermediate states", F=F, **given)
    names["loss"].backward()
    assert len(names["states"]) == 3
    assert all(p.grad.norm() > 0 for p in [*layer.parameters(), *head.parameters()])


@pytest.mark.parametrize(("name", "scale"), [("fpopt", 0.45), ("fpopt_c_minus_2", -2.0)])
def test_patience_damping(name, scale):
    """States and residuals of the reference, which adds 1e-8 to their denominator."""
    golden, cell = GOLDEN[name], GoldenCell(scale)
    steps = golden["steps"]
    solver = names_of("Patience damping")["PatientPicard"](
        max_evaluations=steps + 1,
        **{"decay": 0.5, "patience": 2, "norm": "max", "tol": 1e-8},
        record_trace=True,
    )
    with torch.no_grad():
        (z, _), solution = pg.DEQ(cell, solver, ONE)(cell.inputs, record_at=(steps,))
    residuals = torch.tensor([step["residual"] for step in golden["trace"]])
    torch.testing.assert_close(z, torch.tensor(golden["z"]), rtol=0, atol=1e-12)
    torch.testing.assert_close(solution.trace[:steps], residuals, rtol=1e-7, atol=0)


def test_noise_sets_a_floor_for_the_residual():
    solver = names_of("Noise")["NoisyPicard"](max_evaluations=60, tol=0, record_trace=True)
    layer, x = pg.DEQ(TanhCell(32, norm=0.5), solver, ONE), torch.randn(3, 32)
    z, solution = layer(x)
    floor = 0.01 * 32**0.5 / z.norm(dim=1)
    late = solution.trace[20:]
    assert (late > 0.3 * floor).all()
    assert (late < 3 * floor).all()
    assert layer(x, solver=pg.FixedPoint(max_evaluations=60, tol=1e-9)).solution.converged.all()


def test_the_best_restart_is_solved_for_with_its_gradient():
    """Starts beyond the second equilibrium of the map, near 1.9, diverge."""

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor(0.5))

        def forward(self, z, x):
            return self.w * z * z + x

    gradient = pg.ImplicitGradient()
    layer = pg.DEQ(Square(), pg.FixedPoint(max_evaluations=80, tol=1e-10), gradient)
    x = torch.full((20, 3), 0.1)
    best_of = names_of("Restarts")["best_of"]
    assert 0 < best_of(layer, x, 1, std=2.5).solution.converged.sum() < 15
    z, solution = best_of(layer, x, 40, std=2.5)
    assert solution.converged.all()
    assert (solution.evaluations == 1).all()
    exact = 1 - 0.8**0.5
    torch.testing.assert_close(z, torch.full_like(z, exact), rtol=1e-8, atol=0)
    z.mean().backward()
    assert layer.cell.w.grad.item() == pytest.approx(exact**2 / (1 - exact), rel=1e-5)
