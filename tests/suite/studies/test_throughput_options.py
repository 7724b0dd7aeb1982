"""Throughput in half precision, of whole budgets, and of rows that the command line names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training import Script, Workplace

from phantomgrad_suite.data import PydocTopics
from phantomgrad_suite.jobs.build import compose_row, synthetic_data
from phantomgrad_suite.runs.records import read_study
from phantomgrad_suite.studies import Findings, Throughput
from phantomgrad_suite.studies.clock import Clock
from phantomgrad_suite.studies.throughput import _evaluations
from phantomgrad_suite.studies.training import TrainingStep

CPU = torch.device("cpu")
WORDS, IMAGES = "lm/pydoc_postln_implicit", "table1/npg_k5_d0.5_no_dropout"
pytestmark = [
    pytest.mark.usefixtures("float32", "hydra_restore_singletons"),
    pytest.mark.filterwarnings("ignore:the adjoint solve failed"),
]


def dtypes_in_f(step: TrainingStep) -> set[torch.dtype]:
    """Return the dtypes of what f is made of in a step and in an evaluation alone."""
    seen = set()

    def look(module: Any, inputs: Any, output: Tensor) -> None:
        seen.add(output.dtype)

    for module in step.layers[0].cell.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(look)
    step._step()
    step._calls or step.warm_up(1)
    step._one_f()
    return seen


@pytest.mark.parametrize(
    ("precision", "dtype"), [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)]
)
def test_precision_is_that_of_f(precision: str, dtype: torch.dtype) -> None:
    step = TrainingStep(IMAGES, 1, 0, Clock(CPU), precision=precision)
    assert dtypes_in_f(step) == {dtype}
    assert {p.dtype for p in step.task.parameters()} == {torch.float32}


def test_rows_of_another_precision_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_row(IMAGES)
    config.trainer.precision = "bf16-mixed"
    monkeypatch.setattr("phantomgrad_suite.studies.training.compose_row", lambda name: config)
    with pytest.raises(ValueError, match=rf"32-true, {IMAGES} has 'bf16-mixed'"):
        TrainingStep(IMAGES, 2, 0, Clock(CPU))


def test_another_precision_than_the_two_is_refused() -> None:
    with pytest.raises(ValueError, match="precision must be 32-true or bf16-mixed, got '16-true'"):
        TrainingStep(IMAGES, 1, 0, Clock(CPU), precision="16-true")


def test_budgets_are_spent_whole_where_asked() -> None:
    """Both of the solve and of the adjoint; random weights end that one sooner else."""
    spent = {}
    for whole in (False, True):
        step = TrainingStep(WORDS, 2, 0, Clock(CPU), whole_budgets=whole)
        step._step()
        spent[whole] = _evaluations(step.layers)
    assert spent[False]["adjoint"]["mean"] < spent[False]["adjoint"]["budget"]
    assert all(solves["mean"] == solves["budget"] for solves in spent[True].values())
    assert set(spent[True]) == {"forward", "adjoint"}


def test_words_of_noise_are_as_many_as_those_of_the_help_texts() -> None:
    config = compose_row(WORDS)
    noise = synthetic_data(config.dataset)
    own = PydocTopics(batch_size=1, test_batch_size=1, segment_length=8)
    assert noise.sizes() == own.sizes()
    assert (noise.samples, noise.unit) == (
        config.dataset.batch_size * config.dataset.segment_length,
        "tokens",
    )


def test_each_list_of_rows_has_a_record_among_the_results(
    study_script: Script, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by its rows and its device; settings of another kind change it, as everywhere."""
    measured: list[Throughput] = []

    def measure(study: Throughput, *_: Any) -> Findings:
        measured.append(study)
        return Findings({"clock": "none", "rows": []}, headline="measured")

    monkeypatch.setattr(Throughput, "measure", measure)
    for rows in ("table1/implicit,table1/sgd", "lm/pydoc_postln_implicit"):
        assert study_script("study=throughput", f"rows=[{rows}]").code == 0
    assert study_script("study=throughput", "setting.batch_size=2").code == 0
    records = workplace.path / "results" / "records"
    found = {path.parent.relative_to(records) for path in records.rglob("*.json")}
    assert found == {
        Path("throughput/cpu/table1/implicit/table1/sgd"),
        Path("throughput/cpu/lm/pydoc_postln_implicit"),
    }
    record = read_study(records / "throughput/cpu/table1/implicit/table1/sgd/seed0.json")
    assert record.protocol == "full"
    assert (measured[0].rows, measured[0].against) == (
        ["table1/implicit", "table1/sgd"],
        "table1/implicit",
    )


def test_a_study_refuses_the_settings_of_a_run(study_script: Script) -> None:
    outcome = study_script("study=throughput", "+trainer.precision=bf16-mixed")
    assert outcome.code == 1
    assert outcome.out.startswith("a study has no trainer: what it measures is set by setting.rows")
