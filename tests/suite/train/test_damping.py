"""Adaptive damping in a training run: logged, recorded, resumed."""

from __future__ import annotations

import pytest
from interruptions import assert_same_run, checkpoint, interrupted
from training import Workplace

EVERY = "gradient.damping={{_target_: phantomgrad.AdaptiveDamping, every: {}}}"


@pytest.mark.parametrize(
    ("gradient", "damping"), [("npg", EVERY.format(100)), ("upg", "gradient.damping=adaptive")]
)
def test_run_logs_its_damping(workplace: Workplace, gradient: str, damping: str) -> None:
    record = workplace.record(f"gradient={gradient}", damping, "trainer.max_epochs=3")
    radii, dampings = (record.curves[f"gradient/{name}"] for name in ("radius", "damping"))
    assert len(radii) == 3
    assert dampings == pytest.approx([min(1, 1 / radius) for radius in radii], rel=1e-5)


def test_resumed_run_is_the_uninterrupted_one(workplace: Workplace) -> None:
    """Measured every third pass, interrupted between two measurements."""
    epochs = ("trainer.max_epochs=10", "runtime.checkpoint.every_n_epochs=5")
    here = ("gradient=npg", EVERY.format(3), *epochs)
    whole = workplace.train(*here, "runtime.paths.runs=whole")
    folder = interrupted(workplace, 8, *here)
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    states = [checkpoint(f)["callbacks"]["History"]["curves"] for f in (folder, whole)]
    radii, others = (curves["gradient/radius"] for curves in states)
    assert radii == others
    assert len(set(radii)) == 4  # one for each measurement
