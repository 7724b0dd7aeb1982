"""The work of a training, in evaluations of f: what runs on different machines have in common."""

import numpy as np
from numpy.typing import NDArray

from phantomgrad_suite.runs.lengths import in_steps
from phantomgrad_suite.runs.records import Record

_SOLVES = "solver/evaluations", "adjoint/evaluations"  # means by epoch


def evaluations(record: Record) -> NDArray[np.float64]:
    """Return the evaluations of f, and products with its Jacobian, of all steps up to each epoch.

    A step takes those of its solves. With k steps UPG evaluates f k times to attach the gradient,
    the others once; then there are k products, for implicit differentiation one, and j / (n + 1) of
    one if only j of the n + 1 steps of a recursion are recorded. Backpropagation through the solver
    takes a product for each evaluation, and with Reversible another evaluation. A Jacobian penalty
    takes two evaluations and two products. Pretraining has no solves.
    """
    gradient, task, model = (record.config[part] for part in ("gradient", "task", "model"))
    steps, kind = gradient.get("steps", 1), gradient["_target_"]
    penalty = 4 * (task.get("jacobian") or {}).get("frequency", 0)
    found = [np.array(record.curves[n], dtype=float) for n in _SOLVES if n in record.curves]
    solves = np.sum(np.nan_to_num(found), axis=0)
    if "Backprop" in kind:
        attached = solves * (2 if "Reversible" in record.config["solver"]["_target_"] else 1)
    else:
        # Another model may use one of these names for something else.
        part = model.get("recorded") if model.get("n") is not None else None
        recorded = part / (model["n"] + 1) if part else 1
        attached = (steps if "Unrolled" in kind else 1) + steps * recorded
    step = solves + attached + penalty
    last = record.weights["last"]
    length = last["step"] / last["epoch"]  # of an epoch, in steps
    pretraining = in_steps(task.get("pretraining_steps", 0), last["step"]) - length * np.arange(
        len(step)
    )
    pretraining = np.clip(pretraining, 0, length)
    unrolled = 2 * task.get("pretraining_layers", 0)
    return np.cumsum(pretraining * unrolled + (length - pretraining) * step)
