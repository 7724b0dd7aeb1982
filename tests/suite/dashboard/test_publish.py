"""The report of a table: the object that wandb-workspaces would send."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from report.conftest import PAPER, record

from phantomgrad_suite.dashboard.export import finished, markdown
from phantomgrad_suite.dashboard.publish import build_report, send
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record, Result, write_record

pytest.importorskip("wandb_workspaces.reports.v2")

ROWS = ["toy/implicit", "toy/upg_k5_d0.5"]


@pytest.fixture
def records() -> list[Record]:
    text = record(ROWS[1], "seed0", [0.5], result=Result("perplexity", 9, 1, 9, mode="min"))
    curves = {"validation/loss": [1.0], "precision/step": [0], "precision/cosine": [0.5]}
    return [record(ROWS[0], "seed0", [0.5]), replace(text, curves={**text.curves, **curves})]


def spec(report: Any) -> dict[str, Any]:
    content = report._to_model().spec.model_dump_json(by_alias=True, exclude_none=True)
    return dict(json.loads(content))


def test_report_groups_by_row_and_has_a_panel_for_each_metric(records: list[Record]) -> None:
    report = build_report("toy", ROWS, records, "# Toy", project="mine", entity="us")
    assert (report.project, report.entity, report.title) == ("mine", "us", "phantomgrad: toy")
    assert report.description == "2 rows, 2 finished runs; grouped by row."
    text, grid = (block for block in spec(report)["blocks"] if block["type"] != "paragraph")
    assert text["content"] == "# Toy"
    (runs,) = grid["metadata"]["runSets"]
    assert runs["grouping"] == [{"section": "run", "name": "group"}]
    (chosen,) = runs["filters"]["filters"]
    assert (chosen["key"]["name"], chosen["op"], chosen["value"]) == ("group", "IN", ROWS)
    panels = grid["metadata"]["panelBankSectionConfig"]["panels"]
    drawn = [(p["config"]["metrics"], p["config"].get("xAxis")) for p in panels]
    assert drawn == [
        (["summary_metrics.test/accuracy.max"], None),
        (["summary_metrics.test/perplexity.min"], None),
        (["test/accuracy"], "epoch"),
        (["train/loss"], "epoch"),
        (["validation/loss"], "epoch"),
        (["precision/cosine"], "precision/step"),
    ]
    assert {panel["config"]["groupBy"] for panel in panels} == {"group"}
    places = [(p["layout"]["x"], p["layout"]["y"]) for p in panels]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("earlier", [None, "of before"])
def test_report_of_its_title_is_replaced(
    records: list[Record], monkeypatch: pytest.MonkeyPatch, earlier: str | None
) -> None:
    """What a server would be asked, as far as that can be seen without one."""
    report = build_report("toy", ROWS, records, "", project="mine")
    others = [SimpleNamespace(display_name="another", id="x")]
    if earlier:
        others.append(SimpleNamespace(display_name=report.title, id=earlier))
    asked: list[str] = []
    api = SimpleNamespace(default_entity="us", reports=lambda path: asked.append(path) or others)
    saved = SimpleNamespace(url="the address")
    monkeypatch.setattr(type(report), "save", lambda self: saved)
    assert send(report, SimpleNamespace(Api=lambda: api)) == "the address"
    assert asked == ["us/mine"]
    assert report.id == (earlier or "")


def test_records_of_the_rows_in_the_order_of_the_table(tmp_path: Path) -> None:
    for row in ("toy/b", "toy/a", "toy/other"):
        write_record(record(row, "seed0", [0.5]), tmp_path / row / "seed0.json")
    assert [found.row for found in finished(["toy/b", "toy/a"], tmp_path)] == ["toy/b", "toy/a"]
    (tmp_path / "toy/b/seed0.json").write_text("{")
    with pytest.raises(UserError, match="is no readable record"):
        finished(["toy/b"], tmp_path)


def test_table_in_markdown(tmp_path: Path) -> None:
    (tmp_path / "paper.csv").write_text(PAPER)
    place = tmp_path / "records/table9/toy_implicit/seed0.json"
    write_record(record("table9/toy_implicit", "seed0", [0.5]), place)
    found = markdown("table9", tmp_path)
    assert "84.1" in found  # the paper's
    assert "50.0" in found  # ours
    (tmp_path / "paper.csv").write_text("nonsense")
    with pytest.raises(UserError, match=r"paper\.csv"):
        markdown("table9", tmp_path)
