"""The instrument of Figure 2: dense values on a step of two layers, and no trace in the run."""

from __future__ import annotations

import contextlib
import copy
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from phantomgrad import (
    DEQ,
    BackpropThroughSolver,
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
    agreement,
)
from phantomgrad.callbacks import GradientPrecision
from phantomgrad.errors import UserError
from phantomgrad.nn import VariationalDropout
from phantomgrad.records import read_record
from problems import CoupledCell, TanhCell, dense_jacobian, newton_equilibrium
from training import Workplace

TIGHT = Broyden(max_evaluations=60, tol=1e-13)
EXACT = ImplicitGradient(solver=TIGHT)
ESTIMATORS: dict[str, GradientEstimator] = {
    "exact": EXACT,
    "upg": UnrolledPhantomGradient(5, 0.5),
    "npg": NeumannPhantomGradient(3, 0.8),
}


class Stack(nn.Module):
    """Two layers, one on the other, of the given cells."""

    def __init__(self, *cells: nn.Module, solver: Solver = TIGHT, gradient: Any = EXACT) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DEQ(cell, solver, gradient) for cell in cells)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x, _ = layer(x)
        return x


class Jar:
    """A logger."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        self.points.append((step, values))


def train_step(callback: GradientPrecision, module: Any, x: Tensor, step: int = 0) -> Jar:
    """The part of a training step that the callback sees; the gradients stay."""
    jar = Jar()
    plugin = SimpleNamespace(forward_context=contextlib.nullcontext)
    trainer: Any = SimpleNamespace(global_step=step, loggers=[jar], precision_plugin=plugin)
    module.zero_grad()
    callback.on_train_start(trainer, module)
    callback.on_train_batch_start(trainer, module, None, 0)
    loss = module(x).square().sum()
    callback.on_before_backward(trainer, module, loss)
    loss.backward()
    callback.on_after_backward(trainer, module)
    return jar


class Spy(GradientPrecision):
    """The instrument, with all it has seen."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.looks: list[Any] = []

    def _look(self, heard: Any) -> Any:
        self.looks.append(super()._look(heard))
        return self.looks[-1]


def instrument(**settings: Any) -> Spy:
    return Spy(**{"estimators": ESTIMATORS, "solver": TIGHT, "every_n_steps": 1} | settings)


def last(callback: GradientPrecision) -> dict[str, float]:
    """The last point, without the prefix of its names."""
    return {name.removeprefix("precision/"): c[-1] for name, c in callback.curves().items()}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 4)


@pytest.fixture
def stack() -> Stack:
    return Stack(TanhCell(seed=3), TanhCell(norm=0.6, seed=5))


# --- What is measured --------------------------------------------------------------------------


def dense(stack: Stack, x: Tensor, matrix: Any) -> tuple[list[Tensor], list[Tensor]]:
    """All parameters' gradients with ``u = matrix(J)^T v``, v exact, and all J."""
    points, jacobians = [x], []
    for layer in stack.layers:
        f = partial(call, layer.cell, points[-1])
        points.append(newton_equilibrium(f, torch.zeros_like(x)))
        jacobians.append(dense_jacobian(f, points[-1]))
    v, gradients = 2 * points[-1], []
    for i in (1, 0):
        cell: Any = stack.layers[i].cell
        given, parameters = points[i].clone().requires_grad_(), list(cell.parameters())
        fz, u = cell(points[i + 1], given), times(matrix(jacobians[i]), v)
        gradients = [*torch.autograd.grad(fz, parameters, u, retain_graph=True), *gradients]
        (v,) = torch.autograd.grad(fz, given, times(inverse(jacobians[i]), v))
    return gradients, jacobians


def call(cell: nn.Module, x: Tensor, z: Tensor) -> Tensor:
    return cell(z, x)  # type: ignore[no-any-return]


def times(matrix: Tensor, v: Tensor) -> Tensor:
    return (matrix.mT @ v.unsqueeze(2)).squeeze(2)


def inverse(jacobian: Tensor) -> Tensor:
    return torch.linalg.inv(torch.eye(4) - jacobian)


def neumann(steps: int, damping: float) -> Any:
    def matrix(jacobian: Tensor) -> Tensor:
        b = damping * jacobian + (1 - damping) * torch.eye(4)
        return damping * sum(torch.linalg.matrix_power(b, i) for i in range(steps))  # type: ignore[return-value]

    return matrix


def test_cosine_and_norm_ratio_are_the_dense_ones_over_all_layers(stack: Stack, x: Tensor) -> None:
    callback = instrument()
    train_step(callback, stack, x)
    exact, _ = dense(stack, x, inverse)
    found = last(callback)
    assert (found["exact/cosine"], found["exact/norm_ratio"]) == pytest.approx((1, 1), abs=1e-10)
    for name, matrix in (("npg", neumann(3, 0.8)), ("upg", neumann(5, 0.5))):
        expected = agreement(dense(stack, x, matrix)[0], exact)
        ours = found[f"{name}/cosine"], found[f"{name}/norm_ratio"]
        assert ours == pytest.approx(expected, rel=1e-8)
        assert ours[0] < 0.9999
    assert found["exact/residual"] < 1e-12
    assert found["exact/adjoint_residual"] < 1e-12


def test_radii_are_the_dense_ones(stack: Stack, x: Tensor) -> None:
    callback = instrument(iterations=1500, damping=0.3)
    train_step(callback, stack, x)
    _, jacobians = dense(stack, x, neumann(1, 1.0))
    values = torch.linalg.eigvals(torch.stack(jacobians))
    found = last(callback)
    assert found["spectral_radius/F"] == pytest.approx(values.abs().max().item(), rel=1e-2)
    damped = (0.3 * values + 0.7).abs().max().item()
    assert found["spectral_radius/F_damped"] == pytest.approx(damped, rel=1e-2)


@pytest.mark.parametrize("both", [True, False])
def test_exact_gradient_is_that_of_an_exact_step(x: Tensor, both: bool) -> None:
    """Two layers of two states, of which the loss knows both, or one."""

    class Coupled(Stack):
        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                (x, rest), _ = layer(x, z0=(torch.zeros(3, 4), torch.zeros(3, 2, 3)))
            return torch.cat([x, rest.flatten(1)], dim=1) if self.both else x

    module, callback = Coupled(CoupledCell(), CoupledCell()), instrument()
    module.both = both
    train_step(callback, module, x)
    found = [g for look in callback.looks for g in look.exact.gradient]
    for ours, parameter in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-9, atol=1e-12)


def test_estimates_are_at_the_equilibrium_of_the_step(x: Tensor) -> None:
    """An estimator that trains badly solved layers agrees with the gradient that the step had."""
    npg = NeumannPhantomGradient(3, 0.8)
    module = Stack(TanhCell(), solver=FixedPoint(max_evaluations=3, tol=0), gradient=npg)
    callback = instrument()
    train_step(callback, module, x)
    (look,) = callback.looks
    for ours, parameter in zip(look.estimates["npg"], module.parameters(), strict=True):
        assert torch.equal(ours, parameter.grad)
    assert last(callback)["exact/residual"] < 1e-12


class Wild(nn.Module):
    """All that could tell two evaluations, or two runs, apart."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = spectral_norm(nn.Linear(4, 4))
        self.mask, self.norm = VariationalDropout(0.5), nn.BatchNorm1d(4)
        self.noise = nn.Dropout(0.1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return 0.5 * torch.tanh(self.noise(self.mask(self.linear(z))) + self.norm(x))


def test_weights_and_masks_are_those_of_the_step(x: Tensor) -> None:
    """Spectral norm and dropout: the exact gradient is the step's own."""
    cell = Wild()
    cell.noise.p = 0
    module, callback = Stack(cell), instrument()
    train_step(callback, module, x)
    (look,) = callback.looks
    for ours, parameter in zip(look.exact.gradient, module.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-9, atol=1e-12)


def test_last_pass_of_a_layer_counts(stack: Stack, x: Tensor) -> None:
    """A layer passed twice is measured once; one that the loss does not know, not at all."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = stack.layers

        def forward(self, x: Tensor) -> Tensor:
            self.idle(x)
            return self.used(self.used(x)[0])[0]  # type: ignore[no-any-return]

    callback = instrument()
    train_step(callback, Twice(), x)
    assert len(callback.looks) == 1


# --- When, where to ----------------------------------------------------------------------------


def test_it_looks_at_every_nth_step_once(stack: Stack, x: Tensor) -> None:
    """Also where a step has several batches."""
    callback, logged = instrument(every_n_steps=2, iterations=1), []
    for step in (0, 0, 1, 2, 3, 4, 4):
        logged += train_step(callback, stack, x, step).points
        assert not any(layer._forward_hooks for layer in stack.layers)
    assert callback.curves()["precision/step"] == [0, 2, 4]
    assert [step for step, _ in logged] == [0, 2, 4]
    assert logged[-1][1] == {
        name: c[-1] for name, c in callback.curves().items() if name != "precision/step"
    }


def test_it_can_be_turned_off(stack: Stack, x: Tensor) -> None:
    callback = instrument(every_n_steps=0)
    assert train_step(callback, stack, x).points == []
    assert callback.curves() == {}


def test_step_without_a_backward_pass_adds_nothing(stack: Stack, x: Tensor) -> None:
    callback = instrument()
    for parameter in stack.parameters():
        parameter.requires_grad_(False)
    stack.layers[0].cell.linear.weight.requires_grad_()  # type: ignore[union-attr]
    with torch.no_grad(), pytest.raises(RuntimeError, match="does not require grad"):
        train_step(callback, stack, x)
    assert callback.curves() == {}


# --- No trace ----------------------------------------------------------------------------------


def trained(every: int) -> tuple[list[Tensor], Any]:
    """Parameters, buffers and generators after some steps of a wild model."""
    torch.manual_seed(7)
    module = Stack(
        Wild(),
        Wild(),
        solver=FixedPoint(max_evaluations=5),
        gradient=UnrolledPhantomGradient(3, 0.5),
    )
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    callback = instrument(every_n_steps=every)
    for step in range(3):
        train_step(callback, module, torch.randn(3, 4), step)
        optimizer.step()
    modes = [child.training for child in module.modules()]
    masks = [layer.cell.mask._mask for layer in module.layers]  # type: ignore[union-attr]
    return [*module.state_dict().values(), *masks, torch.get_rng_state()], (
        modes,
        callback.curves(),
    )


def test_looking_at_a_wild_model_does_not_change_it() -> None:
    """Weights, spectral norms, masks, running statistics, generators: in every bit."""
    (without, (modes, nothing)), (with_it, (others, curves)) = trained(0), trained(1)
    assert all(torch.equal(a, b) for a, b in zip(without, with_it, strict=True))
    assert modes == others
    assert nothing == {}
    assert len(curves["precision/upg/cosine"]) == 3


PRECISE = ("callbacks=precision", "callbacks.precision.every_n_steps=3")
SHORT = ("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=7", "checkpoint_every_n_epochs=2")


def saved(folder: Any) -> dict[str, Any]:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)  # type: ignore[no-any-return]


def test_looking_at_a_run_does_not_change_it_and_enters_its_record(workplace: Workplace) -> None:
    plain = workplace.train(*SHORT, "paths.runs=plain")
    looked = workplace.train(*SHORT, *PRECISE, "paths.runs=looked")
    for name, value in saved(plain)["state_dict"].items():
        assert torch.equal(value, saved(looked)["state_dict"][name])
    theirs, ours = (read_record(folder / "record.json").curves for folder in (plain, looked))
    kept = {name: ours.pop(name) for name in list(ours) if name.startswith("precision/")}
    assert ours == theirs
    assert kept["precision/step"] == [0, 3, 6]
    assert all(len(curve) == 3 for curve in kept.values())
    cosines = kept["precision/npg_k9_d0.5/cosine"]
    assert all(-1 <= c <= 1 for c in cosines)
    (table,) = looked.glob("**/metrics.csv")
    assert "precision/npg_k9_d0.5/cosine" in table.read_text().splitlines()[0]


def test_resumed_run_keeps_its_series(workplace: Workplace) -> None:
    whole = workplace.train(*SHORT, *PRECISE, "paths.runs=whole")
    bomb = "+callbacks.bomb={_target_: interruptions.Interrupt, epoch: 6}"
    with pytest.raises(InterruptedError):
        workplace.train(*SHORT, *PRECISE, bomb)
    resumed = workplace.train(*SHORT, *PRECISE)
    assert read_record(resumed / "record.json").curves == read_record(whole / "record.json").curves


# --- Misuse ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"every_n_steps": -1}, "every_n_steps must be at least 0, got -1"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"damping": 0.0}, r"damping must lie in \(0, 1\], got 0.0"),
        ({"estimators": {"bptt": BackpropThroughSolver()}}, "got BackpropThroughSolver as 'bptt'"),
    ],
)
def test_bad_settings_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        instrument(**bad)


@pytest.mark.parametrize("module", [nn.Linear(4, 4), Stack(nn.Tanh())], ids=["none", "bare"])
def test_model_without_anything_to_look_at_is_refused(module: nn.Module, x: Tensor) -> None:
    with pytest.raises(UserError, match="needs an equilibrium layer whose cell has trainable"):
        train_step(instrument(), copy.deepcopy(module), x)


def test_vanishing_gradient_is_said_to_have_no_direction(stack: Stack, x: Tensor) -> None:
    """A loss that has none."""

    class Zero(Stack):
        def forward(self, x: Tensor) -> Tensor:
            return 0 * super().forward(x)

    callback = instrument()
    train_step(callback, Zero(TanhCell()), x)
    assert math.isnan(last(callback)["upg/cosine"])
