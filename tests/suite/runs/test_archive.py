"""A file a row: nothing is lost in it, and what its records share is there once."""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from report.conftest import record

from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.records import Record

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 0.5]) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner),
)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES), min_size=1, max_size=4))
def test_configurations_of_one_file_are_read_as_they_were(tmp_path_factory, contents):
    archive = Archive(tmp_path_factory.mktemp("records"))
    for seed, content in enumerate(contents):
        archive.add(record("t/a", f"seed{seed}", [0.5], config=content))
    found = [one.config for one in archive.of(Record, "t/a")]
    assert json.dumps(found, sort_keys=True) == json.dumps(contents, sort_keys=True)


def test_records_of_a_row_are_lines_of_one_file(tmp_path):
    records = [record("t/a", f"seed{seed}", [0.5, None, 0.1 * seed]) for seed in range(3)]
    for one in reversed(records):
        Archive(tmp_path).add(one)
    shared, *lines = map(json.loads, (tmp_path / "t/a.jsonl").read_text().splitlines())
    assert [line["instance"] for line in lines] == ["seed0", "seed1", "seed2"]
    assert shared["config"] == records[0].config
    assert not any("config" in line for line in lines)
    assert Archive(tmp_path).of(Record, "t") == records
    Archive(tmp_path).add(replace(records[1], config_hash="new"))
    assert [r.config_hash for r in Archive(tmp_path).of(Record, "t/a")][1] == "new"
    assert Archive(tmp_path).of(Record, "t/a", "u") == Archive(tmp_path).of(Record, "t/a")
    assert not Archive(tmp_path).holds(replace(records[0], instance="seed9"))


def test_rows_that_vary_one_row_share_its_file(tmp_path):
    config = {"label": {"reduced": [], "varied": ["gradient.steps"]}}
    for name in ("upg_k1", "upg_k5"):
        Archive(tmp_path).add(record(f"figure3/a/{name}", "seed0", [0.5], config=config))
    assert [*tmp_path.rglob("*.jsonl")] == [tmp_path / "figure3/a.jsonl"]
    assert len(Archive(tmp_path).of(Record, "figure3")) == 2


def _add(folder: Path, seed: int) -> None:
    Archive(folder).add(record("t/a", f"seed{seed}", [0.5]))


def test_several_processes_add_to_one_file(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_add, args=(tmp_path, seed)) for seed in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(Archive(tmp_path).records) == 4
