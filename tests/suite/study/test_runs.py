"""Studies from composition to record: published, reduced, skipped, and claims that fail."""

import logging

import pytest
import torch
from study.tiny import STUDY, TINY, own_study

from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.runs.records import Check, StudyRecord, read_any
from phantomgrad_suite.studies import Findings, Study


def test_study_writes_its_record(workplace):
    """It is in its folder and among the results, since only the seed was overridden."""
    own_study(workplace)
    folder = workplace.study(STUDY, "seed=3")
    assert folder == workplace.path / "runs" / "figure1" / "tanh" / "seed3"
    record = read_any(folder / "record.json")
    results = Archive(workplace.path / "runs/results/records")
    assert results.records["figure1/tanh", "seed3"] == record
    assert (record.row, record.instance) == ("figure1/tanh", "seed3")
    assert (record.protocol, record.changes) == ("full", [])
    assert record.setting["size"] == 16
    assert record.setting["steps"] == [1, 2]
    assert "_target_" not in record.setting
    assert record.numbers["exact"]["agreement"]["n"] == 7
    assert len(record.checks) >= 4
    assert all(check.holds for check in record.checks)
    assert set(record.seconds) == {"total", "cpu"}
    assert set(record.environment["load"]) == {"start", "end"}
    assert record.config_hash == hash_config(record.config)
    assert record.config["runtime"]["run"]["instance"] == "seed3"
    assert torch.__version__.startswith(record.environment["versions"]["torch"])


def test_changed_study_is_reduced_and_not_published(workplace):
    """The hash of its configuration, with the number of threads, names its folder."""
    record = read_any(workplace.study(*TINY, "threads=1") / "record.json")
    assert record.protocol == "reduced"
    changed = {line.partition("=")[0] for line in (*TINY, "threads=1") if line != STUDY}
    assert {change.partition("=")[0] for change in record.changes} == changed
    assert record.instance.startswith("seed0-")
    assert record.instance.endswith(f"-{record.config_hash[:6]}")
    assert not (workplace.path / "runs/results").exists()


class Doubtful(Study):
    """A study with a claim that holds and three that do not."""

    def measure(self, seed, device):
        return Findings(
            {"seed": seed},
            [
                Check.above("water is wet", 2.0, 1.0),
                Check.below("pigs fly", 1.0, 1.0),
                Check.above("snow is black", 1.0, 1.0),
                Check.above("nothing is known", float("nan"), 0.5),
            ],
        )


def test_failed_claims_are_recorded_and_named(workplace, caplog):
    """The next start does not measure again, but fails with the same message."""
    caplog.set_level(logging.INFO)
    path = own_study(workplace)
    path.write_text("# @package _global_\nsetting: {_target_: study.test_runs.Doubtful}\n")
    with pytest.raises(UserError) as caught:
        workplace.study(STUDY)
    assert str(caught.value) == (
        "figure1/tanh: a claim does not hold: "
        "pigs fly: 1 (bound 1); snow is black: 1 (bound 1); nothing is known: nan (bound 0.5)"
    )
    (record,) = Archive(workplace.path / "runs/results/records").of(StudyRecord, "figure1/tanh")
    assert [check.holds for check in record.checks] == [True, False, False, False]
    with pytest.raises(UserError, match="pigs fly"):
        workplace.study(STUDY)
    assert "finished, skipped" in caplog.messages[-1]
