"""The instrument of Figure 2 in a run: when it looks, no trace of it, and what it refuses."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from callbacks.steps import Stack, Wild, instrument, last, train_step
from problems import TanhCell
from torch import Tensor, nn
from training import Workplace

from phantomgrad import BackpropThroughSolver, FixedPoint, UnrolledPhantomGradient
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import read_record

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


@pytest.mark.filterwarnings("ignore:.*has no equilibrium in training")
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
