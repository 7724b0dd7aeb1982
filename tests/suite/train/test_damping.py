"""Adaptive damping in a training run: logged, recorded, resumed."""

from __future__ import annotations

import math

import pytest
from interruptions import assert_same_run, checkpoint, interrupted
from training import Workplace

EVERY = "gradient.damping={{_target_: phantomgrad.AdaptiveDamping, every: {}}}"


@pytest.mark.parametrize("gradient", ["npg", "upg"])
def test_a_run_logs_its_damping(workplace: Workplace, gradient: str) -> None:
    here = (f"gradient={gradient}", EVERY.format(100), "trainer.max_epochs=3")
    record = workplace.record(*here)
    radii, dampings = (record.curves[f"gradient/{name}"] for name in ("radius", "damping"))
    assert len(radii) == len(dampings) == 3
    assert all(math.isclose(d, min(1, 1 / r), rel_tol=1e-5) for r, d in zip(radii, dampings))  # noqa: B905
    assert record.config["gradient"]["damping"]["every"] == 100


def test_a_row_with_a_number_takes_the_word(workplace: Workplace) -> None:
    here = ("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=1", "gradient.damping=adaptive")
    record = workplace.record(*here)
    assert record.config["gradient"]["damping"] == "adaptive"
    assert "gradient/damping" in record.curves


def test_a_resumed_run_is_the_uninterrupted_one(workplace: Workplace) -> None:
    """Measured every third pass, broken off between two measurements."""
    here = (
        *("gradient=npg", EVERY.format(3)),
        *("trainer.max_epochs=10", "checkpoint_every_n_epochs=5"),
    )
    whole = workplace.train(*here, "paths.runs=whole")
    folder = interrupted(workplace, 8, *here)
    assert workplace.train(*here) == folder
    assert_same_run(folder, whole)
    a, b = (
        checkpoint(f)["callbacks"]["History"]["curves"]["gradient/radius"] for f in (folder, whole)
    )
    assert a == b
    assert len(set(a)) == 4  # one for each measurement
