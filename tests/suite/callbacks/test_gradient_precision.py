"""GradientPrecision: values in a step of two layers, and no effect on a run."""

from dataclasses import replace

import pytest
import torch
from callbacks.steps import Stack, Wild, callback, last, recorded, train_step
from interruptions import measured_curves
from problems import CoupledCell, TanhCell, dense_jacobian, newton_equilibrium

from phantomgrad import (
    GMRES,
    Broyden,
    FixedPoint,
    ImplicitGradient,
    UnrolledPhantomGradient,
)


@pytest.fixture
def x():
    return torch.randn(3, 4)


@pytest.fixture
def stack():
    return Stack(TanhCell(seed=3), TanhCell(norm=0.6, seed=5))


def test_spectral_radii(stack, x):
    """And the exact gradient, which is that of an exact estimator."""
    precision = callback(iterations=1500, damping=0.3)
    train_step(precision, stack, x)
    jacobians = []
    for layer in stack.layers:
        f, _ = layer.close_over((x,), x)
        x = newton_equilibrium(f, torch.zeros_like(x))
        jacobians.append(dense_jacobian(f, x))
    values = torch.linalg.eigvals(torch.stack(jacobians))
    found = last(precision)
    assert found["spectral_radius/F"] == pytest.approx(values.abs().max().item(), rel=1e-2)
    damped = (0.3 * values + 0.7).abs().max().item()
    assert found["spectral_radius/F_damped"] == pytest.approx(damped, rel=1e-2)
    assert (found["exact/cosine"], found["exact/norm_ratio"]) == pytest.approx((1, 1), abs=1e-10)
    assert max(found["exact/residual"], found["exact/adjoint_residual"]) < 1e-12
    assert max(found["npg/cosine"], found["upg/cosine"]) < 0.9999


@pytest.mark.parametrize("both", [True, False])
def test_exact_gradient_is_that_of_an_exact_step(x, both, monkeypatch):
    """Two layers have two states each; the loss depends on both states or on one."""

    class Coupled(Stack):
        def forward(self, x):
            for layer in self.layers:
                (x, rest), _ = layer(x, z0=(torch.zeros(3, 4), torch.zeros(3, 2, 3)))
            return torch.cat([x, rest.flatten(1)], dim=1) if both else x

    module, exact = Coupled(CoupledCell(), CoupledCell()), recorded(monkeypatch, "exact_gradient")
    train_step(callback(), module, x)
    found = [g for layer in exact for g in layer.gradient]
    expected = [parameter.grad for parameter in module.parameters()]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_preconditioned_estimate_takes_the_inverse_of_a_forward_solve(x):
    """The inverse of a tight solve of four dimensions is exact: two products are enough."""
    adjoint, forward = GMRES(max_evaluations=2, tol=0), Broyden(max_evaluations=50, tol=1e-12)
    plain = ImplicitGradient(solver=adjoint, on_failure="ignore")
    estimators = {"plain": plain, "preconditioned": replace(plain, preconditioner="forward")}
    precision = callback(estimators=estimators)
    train_step(precision, Stack(TanhCell(), solver=forward), x)
    found = last(precision)
    assert found["preconditioned/cosine"] > max(found["plain/cosine"], 1 - 1e-8)


def trained(every):
    """Tensors and generator after some steps of a wild model, its modes, and the curves."""
    torch.manual_seed(7)
    solver, gradient = FixedPoint(max_evaluations=5), UnrolledPhantomGradient(3, 0.5)
    module = Stack(Wild(), Wild(), solver=solver, gradient=gradient)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    precision = callback(every_n_steps=every)
    for step in range(3):
        train_step(precision, module, torch.randn(3, 4), step)
        optimizer.step()
    tensors = [*module.state_dict().values(), torch.get_rng_state()]
    return tensors, [child.training for child in module.modules()], precision.curves


@pytest.mark.filterwarnings("ignore:the cell (mixes|returns)")
def test_measuring_does_not_change_a_wild_model():
    """Weights, spectral norms, running statistics and generators stay equal bit for bit."""
    (without, modes, nothing), (measured, others, curves) = trained(0), trained(1)
    assert all(torch.equal(a, b) for a, b in zip(without, measured, strict=True))
    assert modes == others
    assert nothing == {}
    assert len(curves["precision/upg/cosine"]) == 3


RUN = (
    *("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=7"),
    *("runtime.checkpoint.every_n_epochs=2", "runtime.callbacks.spectrum.every_n_epochs=1"),
    *("callbacks=precision", "measure.precision.every_n_steps=3"),
)
OFF = ("measure.precision=null", "runtime.callbacks.spectrum=null")


def test_record_has_the_curves_of_a_run_that_is_not_changed(workplace):
    kept = measured_curves(workplace, RUN, OFF, at=6)
    assert kept["precision/step"] == [0, 3, 6]
    assert all(len(curve) == 3 for curve in kept.values())
    assert all(-1 <= c <= 1 for c in kept["precision/npg_k9_d0.5/cosine"])
