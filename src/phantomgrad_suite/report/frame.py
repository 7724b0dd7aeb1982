"""All training runs as one pandas frame: a line a run."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from phantomgrad_suite.runs import formats
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.lengths import in_steps
from phantomgrad_suite.runs.metrics import Metric, metric_of
from phantomgrad_suite.runs.records import Record

EXPERIMENT = ["row", "protocol", "changes", "config_hash", "metric", "fingerprint"]
"""What the runs of an experiment share: runs that differ in it are in no cell together."""

_FORMS = {
    "ImplicitGradient": "implicit",
    "UnrolledPhantomGradient": "UPG",
    "NeumannPhantomGradient": "NPG",
    "BackpropThroughSolver": "BPTT",
}
_SOLVES = "solver/evaluations", "adjoint/evaluations"  # means by epoch


def frame_of(records: Iterable[Record]) -> pd.DataFrame:
    """Return a line for each run: what it is, its scores and costs, and the whole record.

    ``experiment`` numbers the experiments in the order of their first runs.
    """
    frame = pd.DataFrame([_facts(record) for record in records])
    if frame.empty:
        return pd.DataFrame(columns=["record", "experiment", *EXPERIMENT])
    frame["experiment"] = frame.groupby(EXPERIMENT, sort=False).ngroup()
    return frame


def _facts(record: Record) -> dict[str, Any]:
    label, result, (scale, row) = record.label, record.result, split_row(record.row)
    scaled, reduction = _reduction(record, scale)
    return {
        "record": record,
        "row": record.row,
        "unscaled": row,
        "scale": scale,
        "block": block_of(record.row),
        "instance": record.instance,
        "key": label.get("dataset", ""),
        "model": label.get("model", ""),
        "method": label.get("method", record.row),
        "fingerprint": str(record.data.get("fingerprint", "")),
        "protocol": record.protocol,
        "changes": tuple(record.changes),
        "scaled": scaled,
        "reduction": reduction,
        "config_hash": record.config_hash,
        "metric": result.metric,
        "mode": result.mode,
        **{name: getattr(result, name) for name in ("best", "last", "selected")},
        **_objective(record),
        "diverged": bool(record.diverged),
        "parameters": record.parameters.get("total"),
        "evaluations": record.solver.get("evaluations"),
        "adjoint_evaluations": record.solver.get("adjoint_evaluations"),
        "step_in_f": _step_in_f(record),
        "peak_bytes": record.memory.get("peak_bytes"),
        "hardware": _hardware(record),
        **_gradient(record.config.get("gradient") or {}),
    }


def block_of(row: str) -> str:
    """Return the folder between the table and the row, in that of its scale (``cpu/honest``)."""
    scale, name = split_row(row)
    return "/".join([*([scale] if scale else []), *name.split("/")[1:-1]])


def metric_of_run(record: Record) -> Metric:
    """Return the metric of a run's result."""
    return metric_of(record.result.metric, record.result.mode)


def _reduction(record: Record, scale: str) -> tuple[str, str]:
    """Return what the scale reduces in all rows alike, and how else a run is not the full one."""
    named = {*record.config["label"]["reduced"], record.data.get("reduced")} if scale else set()
    scaled = ", ".join(c for c in record.changes if c in named)
    changes = ", ".join(change for change in record.changes if change not in named)
    reduced = changes or (record.protocol != "full" and not scaled)
    return scaled, f"{record.protocol}: {changes or 'unknown'}" if reduced else ""


class Estimator(NamedTuple):
    """An estimator that a run has measured, as figures name and colour it."""

    name: str
    family: str


def _gradient(gradient: Mapping[str, Any]) -> dict[str, Any]:
    """Return the family of a gradient, and λ and k of UPG and NPG; λ is NaN where it adapts.

    With λ = k = 1 both are the one-step gradient.
    """
    family = _FORMS.get(str(gradient.get("_target_", "")).rpartition(".")[2], "")
    damping, steps = gradient.get("damping"), gradient.get("steps")
    fixed = family in ("UPG", "NPG") and isinstance(damping, int | float)
    return {
        "family": "one step" if fixed and damping == steps == 1 else family,
        "form": family if fixed else "",
        "damping": float(damping) if fixed else math.nan,  # type: ignore[arg-type]
        "steps": steps if fixed else 0,
    }


def estimators_of(record: Record) -> dict[str, Estimator]:
    """Return the estimators that a run has measured, by their names in curves."""
    if not record.config.get("measure"):
        return {}
    measured = OmegaConf.create(dict(record.config)).measure  # refers to solvers elsewhere
    configured: Any = OmegaConf.to_container(measured, resolve=True)
    return {
        name: _estimator(name, gradient)
        for settings in filter(None, configured.values())
        for name, gradient in (settings.get("estimators") or {}).items()
    }


def _estimator(name: str, gradient: Mapping[str, Any]) -> Estimator:
    known = _gradient(gradient)
    if known["form"]:
        name = f"{known['form']} A({known['steps']}, {known['damping']})"
    elif known["family"] == "implicit":
        solver = gradient["solver"]
        preconditioned = "preconditioned " if gradient.get("preconditioner") else ""
        kind = solver["_target_"].rpartition(".")[2]
        name = f"Implicit {preconditioned}{kind}({solver['max_evaluations']})"
    return Estimator(name, known["family"])


def _objective(record: Record) -> dict[str, Any]:
    """Return the best finite value by which a search judges a run, and what it is."""
    search = (record.config.get("runtime") or {}).get("tune") or {}
    if not search:
        return {"objective": None, "searched": "", "direction": ""}
    curve = np.array(record.curves.get(search["objective"], [np.nan]), dtype=float)
    best = {"minimize": np.min, "maximize": np.max}[search["direction"]]
    known = curve[np.isfinite(curve)]
    value = float(best(known)) if known.size else None
    return {"objective": value, "searched": search["objective"], "direction": search["direction"]}


def _step_in_f(record: Record) -> float | None:
    """Return the mean CPU time of a training step in evaluations of f, or None if not recorded.

    Times of f differ between machines as those of steps do, so runs on several can be compared.
    Pretraining measures no f.
    """
    names = ("seconds/step_cpu", "seconds/f_cpu")  # sums by epoch, and of one f
    step, f = (np.array(record.curves.get(name, []), dtype=float) for name in names)
    if not record.seconds.get("step_cpu") or not step.size or not (known := ~np.isnan(f)).any():
        return None
    steps = step.sum() / record.seconds["step_cpu"] / len(step)  # of an epoch
    return float(step[known].mean() / steps / np.median(f[known]))


def _hardware(record: Record) -> str:
    """Return the device of a run and how many processes shared it."""
    environment = record.environment
    on_gpu = record.memory.get("kind") == "cuda" and bool(environment.get("accelerator"))
    device, processes = formats.hardware(environment, on_gpu), environment.get("processes", 1)
    if processes == 1:
        return device
    if on_gpu:
        return f"{processes} x {device}"
    processor, threads = device.rsplit(", ", 1)
    return f"{processor}, {processes} processes of {threads}"


def curves_of(records: Sequence[Record], name: str) -> list[list[float]]:
    """Return a curve of each run that has it."""
    return [curve for record in records if (curve := record.curves.get(name))]


def by_epoch(curves: Sequence[Any]) -> pd.DataFrame:
    """Return curves as columns, by epoch; the shorter ones end in NaN."""
    return pd.DataFrame({i: pd.Series(curve, dtype=float) for i, curve in enumerate(curves)})


def evaluations(record: Record) -> np.ndarray:
    """Return the evaluations of f, and products with its Jacobian, of all steps up to each epoch.

    A step takes those of its solves. With k steps UPG evaluates f k times to attach the gradient,
    the others once, or twice with ``at: image``; then there are k products, for implicit
    differentiation one, and j / (n + 1) of one if only j of the n + 1 steps of a recursion are
    recorded. Backpropagation through the solver takes a product for each evaluation, and with
    Reversible another evaluation. A Jacobian penalty takes two evaluations and two products, one on
    the radius a product more for each iteration, and one on f(z) - z an evaluation and a product.
    Pretraining has no solves.
    """
    gradient, task, model = (record.config[part] for part in ("gradient", "task", "model"))
    steps, kind = gradient.get("steps", 1), gradient["_target_"]
    penalty = _penalty(task.get("jacobian") or {})
    found = [np.array(record.curves[n], dtype=float) for n in _SOLVES if n in record.curves]
    solves = np.sum(np.nan_to_num(found), axis=0)
    if "Backprop" in kind:
        attached = solves * (2 if "Reversible" in record.config["solver"]["_target_"] else 1)
    else:
        # Another model may use one of these names for something else.
        part = model.get("recorded") if model.get("n") is not None else None
        recorded = part / (model["n"] + 1) if part else 1
        once = 2 if gradient.get("at") == "image" else 1  # at the equilibrium, and at its image
        attached = (steps if "Unrolled" in kind else once) + steps * recorded
    step = solves + attached + penalty
    last = record.weights["last"]
    length = last["step"] / last["epoch"]  # of an epoch, in steps
    steps = in_steps(task.get("pretraining_steps", 0), last["step"])
    pretraining = steps - length * np.arange(len(step))
    pretraining = np.clip(pretraining, 0, length)
    unrolled = 2 * task.get("pretraining_layers", 0)
    return np.cumsum(pretraining * unrolled + (length - pretraining) * step)


def _penalty(settings: Mapping[str, Any]) -> float:
    """Return the mean evaluations and products that a penalty takes in a step."""
    on_state = "FixedPoint" in settings.get("_target_", "")
    cost = 2 if on_state else 4 + settings.get("iterations", 0)
    return float(cost * settings.get("frequency", 1)) if settings else 0.0
