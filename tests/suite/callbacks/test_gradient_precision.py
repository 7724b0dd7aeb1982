"""GradientPrecision and SpectralRadius: values in a step of two layers, and no effect on a run."""

import contextlib
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from interruptions import measured_curves
from problems import CoupledCell, TanhCell, dense_jacobian, newton_equilibrium
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import phantomgrad as pg
from phantomgrad.nn import VariationalDropout
from phantomgrad_suite.callbacks import GradientPrecision, SpectralRadius, gradient_precision

TIGHT = pg.Broyden(max_evaluations=60, tol=1e-13)
EXACT = pg.ImplicitGradient(solver=TIGHT)
ESTIMATORS = {
    "exact": EXACT,
    "upg": pg.UnrolledPhantomGradient(5, 0.5),
    "npg": pg.NeumannPhantomGradient(3, 0.8),
}


class Stack(nn.Module):
    """A layer of each of the given cells, one after the other."""

    def __init__(self, *cells, solver=TIGHT, gradient=EXACT):
        super().__init__()
        self.layers = nn.ModuleList(pg.DEQ(cell, solver, gradient) for cell in cells)

    def forward(self, x):
        for layer in self.layers:
            x, _ = layer(x)
        return x


class Wild(nn.Module):
    """A cell with everything that can make two evaluations differ."""

    def __init__(self):
        super().__init__()
        self.linear = spectral_norm(nn.Linear(4, 4))
        self.mask, self.norm = VariationalDropout(0.5), nn.BatchNorm1d(4)
        self.noise = nn.Dropout(0.1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, z, x):
        self.calls = self.calls + 1
        return 0.5 * torch.tanh(self.noise(self.mask(self.linear(z))) + self.norm(x))


def callback(**settings):
    defaults = {"estimators": ESTIMATORS, "solver": TIGHT, "every_n_steps": 1}
    return GradientPrecision(**(defaults | settings))


def train_step(callback, module, x, step=0):
    """Do the part of a training step that GradientPrecision sees."""
    logger = SimpleNamespace(log_metrics=lambda values, step: None)
    plugin = SimpleNamespace(forward_context=contextlib.nullcontext)
    trainer = SimpleNamespace(global_step=step, loggers=[logger], precision_plugin=plugin)
    module.zero_grad()
    callback.on_train_batch_start(trainer, module)
    loss = module(x).square().sum()
    callback.on_before_backward()
    loss.backward()
    callback.on_after_backward(trainer, module)


def radius_step(callback, module, x, epoch=0, batch=0):
    """Do the part of a training step that SpectralRadius sees; return what it logged."""
    logged = []
    module.log = lambda name, value, **_: logged.append((name, value.item()))
    trainer = SimpleNamespace(current_epoch=epoch)
    callback.on_train_batch_start(trainer, module, None, batch)
    module(x)
    callback.on_before_backward(trainer, module)
    return logged


def last(callback):
    """Return the last point, by name without the prefix."""
    return {name.removeprefix("precision/"): c[-1] for name, c in callback.curves.items()}


def recorded(monkeypatch, name):
    """Return a list of what a function of the callback's module will return."""
    found = []
    function = getattr(gradient_precision, name)

    def call(*arguments, **options):
        found.append(function(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(gradient_precision, name, call)
    return found


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
    ((name, logged),) = radius_step(SpectralRadius(1, iterations=1500), stack, x)
    jacobians = []
    for layer in stack.layers:
        f, _ = layer.close_over((x,), x)
        x = newton_equilibrium(f, torch.zeros_like(x))
        jacobians.append(dense_jacobian(f, x))
    values = torch.linalg.eigvals(torch.stack(jacobians))
    found, radius = last(precision), pytest.approx(values.abs().max().item(), rel=1e-2)
    assert found["spectral_radius/F"] == radius
    assert (name, logged) == ("spectral_radius", radius)
    damped = (0.3 * values + 0.7).abs().max().item()
    assert found["spectral_radius/F_damped"] == pytest.approx(damped, rel=1e-2)
    assert (found["exact/cosine"], found["exact/norm_ratio"]) == pytest.approx((1, 1), abs=1e-10)
    assert max(found["exact/residual"], found["exact/adjoint_residual"]) < 1e-12
    assert max(found["npg/cosine"], found["upg/cosine"]) < 0.9999


def test_cosine_of_a_pair_of_estimators(stack, x):
    """To itself 1, and to the exact one that of the estimator, both ways round."""
    precision = callback(pairs=[("upg", "upg"), ("upg", "exact"), ("exact", "upg")])
    train_step(precision, stack, x)
    found = last(precision)
    names = ["upg/to_upg", "upg/to_exact", "exact/to_upg"]
    expected = [1.0, found["upg/cosine"], found["upg/cosine"]]
    assert [found[name] for name in names] == pytest.approx(expected, abs=1e-12)
    assert found["upg/cosine"] < 0.9999
    for wrong in (("upg", "bptt"), ("upg", "npg", "upg"), "upg"):
        with pytest.raises(ValueError, match="pairs must be pairs of names of estimators, got"):
            callback(pairs=[wrong])


@pytest.mark.parametrize(("every", "expected"), [(2, [1, 0, 0, 0, 1, 0, 0, 0]), (0, [0] * 8)])
def test_first_batch_of_every_nth_epoch_is_measured(stack, x, every, expected):
    measure, steps = SpectralRadius(every, iterations=1), itertools.product(range(4), range(2))
    assert [len(radius_step(measure, stack, x, *step)) for step in steps] == expected
    assert not any(layer._pass_hooks for layer in stack.layers)


class Masked(CoupledCell):
    """A cell of two states, with a dropout mask that is drawn once in a pass."""

    def __init__(self):
        super().__init__()
        self.mask = VariationalDropout(0.3)

    def forward(self, z, x):
        a, b = z
        return super().forward((self.mask(a), b), x)


@pytest.mark.parametrize("both", [True, False])
def test_exact_gradient_is_that_of_an_exact_step(x, both, monkeypatch):
    """Two layers have two states each; the loss depends on both states or on one."""

    class Coupled(Stack):
        def forward(self, x):
            for layer in self.layers:
                (x, rest), _ = layer(x, z0=(torch.zeros(3, 4), torch.zeros(3, 2, 3)))
            return torch.cat([x, rest.flatten(1)], dim=1) if both else x

    module, exact = Coupled(Masked(), Masked()), recorded(monkeypatch, "exact_gradient")
    train_step(callback(), module, x)
    found = [g for layer in exact for g in layer.gradient]
    expected = [parameter.grad for parameter in module.parameters()]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_preconditioned_estimate_takes_the_inverse_of_a_forward_solve(x):
    """The inverse of a tight solve of four dimensions is exact: two products are enough."""
    adjoint, forward = pg.GMRES(max_evaluations=2, tol=0), pg.Broyden(max_evaluations=50, tol=1e-12)
    plain = pg.ImplicitGradient(solver=adjoint, on_failure="ignore")
    estimators = {"plain": plain, "preconditioned": replace(plain, preconditioner="forward")}
    precision = callback(estimators=estimators)
    train_step(precision, Stack(TanhCell(), solver=forward), x)
    found = last(precision)
    assert found["preconditioned/cosine"] > max(found["plain/cosine"], 1 - 1e-8)


def trained(every):
    """Tensors and generator after some steps of a wild model, its modes, and the curves."""
    torch.manual_seed(7)
    solver, gradient = pg.FixedPoint(max_evaluations=5), pg.UnrolledPhantomGradient(3, 0.5)
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
