"""Every file of a row, table or study: what it says, and which experiment it is."""

import re

import pytest
from experiments.rows import CONFIGS, LISTS, ROWS, SWEEPS, TABLES, resolved, rows_of, text
from hydra.utils import instantiate
from report.conftest import PUBLISHED
from training import composed

from phantomgrad_suite.jobs.compose import as_dict, recorded
from phantomgrad_suite.runs.configs import choices
from phantomgrad_suite.runs.identity import hash_config
from phantomgrad_suite.runs.plan import tables
from phantomgrad_suite.runs.records import StudyRecord
from phantomgrad_suite.studies import Study

STUDIES = choices("study")
FILES = [path.relative_to(PUBLISHED.folder) for path in PUBLISHED.folder.rglob("*.jsonl")]
OF_ROWS = [
    row
    for row in sorted(path.as_posix().removesuffix(".jsonl") for path in FILES)
    if row.removeprefix("cpu/") in (*ROWS, *STUDIES)
    and not row.startswith("cpu/figure2/cifar10_")  # of an earlier, shorter CPU edition
]


def test_a_row_says_in_one_line_what_it_is():
    for row in ROWS:
        package, *lines = text(row).splitlines()
        assert package == "# @package _global_", row
        assert [line for line in lines if line.startswith("#")] == lines[:1], row


def test_every_row_belongs_to_one_table():
    """A sweep has rows of its own, and varies an experiment that some table lists."""
    own = [table for table in LISTS if not table.endswith("_seeds")]
    assert sorted(row for table in own for row in rows_of(table)) == ROWS
    for table in set(tables()) - {*TABLES}:  # of a scale
        assert set(rows_of(table)) <= set(rows_of(table.split("/")[1]))
    assert {row for table in SWEEPS for row in rows_of(table)} <= set(ROWS)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("row", OF_ROWS)
def test_published_records_are_those_of_the_files(row):
    """Their hash is that of the row, also at a scale, or of the study as its file has it now."""
    config = recorded(composed([f"study={row}"], root="study")) if row in STUDIES else resolved(row)
    found = {record.config_hash for (of, _), record in PUBLISHED.records.items() if of == row}
    assert found == {hash_config(config)}


@pytest.mark.usefixtures("workplace")
def test_published_studies_of_runs_are_those_of_the_files():
    records = [r for study in ("scaling", "settling") for r in PUBLISHED.of(StudyRecord, study)]
    assert records
    for record in records:
        study, _, run = record.row.partition("/")
        config = recorded(composed([f"study={study}", f"run={run}"], root="study"))
        assert record.config_hash == hash_config(config), record.row


@pytest.mark.usefixtures("workplace")
def test_a_label_has_the_steps_and_the_damping_of_the_gradient():
    for row in ROWS:
        config = resolved(row)
        for k, damping in re.findall(r"A\((\d+), ([\d.]+)\)", config["label"]["method"]):
            gradient = config["gradient"]
            assert (int(k), float(damping)) == (gradient["steps"], gradient["damping"]), row


@pytest.mark.usefixtures("workplace")
def test_timed_rows_are_those_of_the_files():
    timed = PUBLISHED.of(StudyRecord, "throughput")
    numbers = [row for record in timed for row in record.numbers["rows"]]
    found = {(row["row"], row["config_hash"]) for row in numbers}
    assert found == {(row, hash_config(resolved(row))) for row, _ in found}


@pytest.mark.usefixtures("workplace")
def test_every_choice_of_every_group_composes():
    """Other tests compose the tables, scales, searches, experiments and studies."""
    others = ("experiment", "table", "scale", "tune", "study", "hydra")
    groups = [p.name for p in CONFIGS.iterdir() if p.is_dir() and p.name not in others]
    known = {group: choices(group) for group in groups}
    for i in range(max(map(len, known.values()))):
        chosen = [f"{group}={own[i % len(own)]}" for group, own in known.items()]
        assert recorded(composed([*chosen, "++dataset.segment_length=64"]))  # as memories follow it


@pytest.mark.usefixtures("workplace")
def test_studies_compose_and_build():
    """A file sets every setting, so that the record shows all of them; no two are the same."""
    hashes = set()
    for study in STUDIES:
        config = as_dict(composed([f"study={study}"], root="study"))
        built = instantiate(config["setting"])
        assert isinstance(built, Study)
        shown = {k for k in config["setting"] if not k.startswith("_")}
        shown |= config["runtime"].get("setting", {}).keys()  # paths
        assert shown == set(built.__dataclass_fields__)
        assert config["seed"] == 0
        hashes.add(hash_config(config))
    assert len(hashes) == len(STUDIES)
