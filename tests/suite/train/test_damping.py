"""Adaptive damping in a training run: logged, recorded, resumed."""

from __future__ import annotations

import pytest
from interruptions import assert_same_run, checkpoint, interrupted
from training import Workplace

EVERY = "gradient.damping={{_target_: phantomgrad.AdaptiveDamping, every: {}}}"


@pytest.mark.parametrize("gradient", ["npg", "upg"])
def test_run_logs_its_damping(workplace: Workplace, gradient: str) -> None:
    settings = (f"gradient={gradient}", EVERY.format(100), "trainer.max_epochs=3")
    record = workplace.record(*settings)
    radii, dampings = (record.curves[f"gradient/{name}"] for name in ("radius", "damping"))
    assert len(radii) == 3
    assert dampings == pytest.approx([min(1, 1 / radius) for radius in radii], rel=1e-5)
    assert record.config["gradient"]["damping"]["every"] == 100


def test_damping_of_a_row_may_be_set_to_adaptive(workplace: Workplace) -> None:
    here = ("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=1", "gradient.damping=adaptive")
    record = workplace.record(*here)
    assert record.config["gradient"]["damping"] == "adaptive"
    assert "gradient/damping" in record.curves


def test_resumed_run_is_the_uninterrupted_one(workplace: Workplace) -> None:
    """Measured every third pass, interrupted between two measurements."""
    epochs = ("trainer.max_epochs=10", "checkpoint_every_n_epochs=5")
    here = ("gradient=npg", EVERY.format(3), *epochs)
    whole = workplace.train(*here, "paths.runs=whole")
    folder = interrupted(workplace, 8, *here)
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    states = [checkpoint(f)["callbacks"]["History"]["curves"] for f in (folder, whole)]
    radii, others = (curves["gradient/radius"] for curves in states)
    assert radii == others
    assert len(set(radii)) == 4  # one for each measurement
