"""Runs and reports of wandb made from records."""

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from report.conftest import record

from phantomgrad_suite import export_wandb
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Result
from phantomgrad_suite.runs.wandb_naming import names

wandb = pytest.importorskip("wandb")

PLACE = ("chains/upg_k5_d0.5", "seed1")
ROWS = ["chains/implicit", PLACE[0]]
CONFIG = {"runtime": {"run": {"gradient": "upg"}}, "seed": 1}


class Chains:
    """The results and the runs of a table."""

    def __init__(self, path):
        self.runs, self.results = path / "runs", path / "results"

    def publish(self, row, instance):
        Archive(self.results / "records").add(record(row, instance, [0.5], config=CONFIG))

    def export(self, *more):
        places = ["--runs", str(self.runs), "--results", str(self.results)]
        return export_wandb.main(["chains", *places, *more])


@pytest.fixture
def chains(tmp_path):
    return Chains(tmp_path)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    wandb.finish()
    wandb.teardown()


def test_names(monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "here")
    assert names(*PLACE, "Toy")["id"] == names("chains", "upg_k5_d0.5/seed1", "")["id"]
    assert len(names("a", "b", "c", ["d" * 200])["name"]) == 128
    assert names(PLACE[0], "seed2", "Toy")["id"] != names(*PLACE, "Toy")["id"]
    assert names("table4/honest/cox2", "seed0", "COX2")["tags"] == ["table4", "table4/honest/cox2"]
    assert names("cpu/table1/implicit", "seed0", "x")["tags"] == ["table1", "cpu/table1/implicit"]
    assert names("custom", "seed0", "Toy")["tags"] == ["custom"]
    assert names(f"toy/{'x' * 80}", "seed0", "Toy")["tags"] == ["toy"]  # or wandb refuses


def test_history():
    curves = {"precision/step": [0, 50], "precision/cosine": [0.5, None], "gradient/radius": [0.7]}
    made = record(*PLACE, [0.5, None])
    made = replace(made, curves={**made.curves, **curves})
    assert list(export_wandb.history(made)) == [
        {"epoch": 0, "test/accuracy": 0.5, "train/loss": 1.0, "gradient/radius": 0.7},
        {"epoch": 1, "train/loss": 0.5},
        {"precision/step": 0, "precision/cosine": 0.5},
        {"precision/step": 50},
    ]


def test_run_has_the_content_of_its_record(tmp_path, monkeypatch):
    made = record(
        *PLACE,
        [0.5],
        config=CONFIG,
        curves={"test/perplexity": [9.0, 7.0, 8.0]},
        result=Result("perplexity", 7, 2, 8, mode="min"),
    )
    monkeypatch.setattr(wandb, "init", init := Mock())
    export_wandb.rebuild(made, tmp_path, project="mine", entity="us", mode="offline")
    given, run = init.call_args.kwargs, init.return_value
    assert given["id"] == names(*PLACE, "Toy")["id"]
    assert (given["entity"], given["mode"], given["job_type"]) == ("us", "offline", "upg")
    assert (given["group"], given["name"]) == (PLACE[0], "upg_k5_d0.5 seed1 on Toy")
    own = {"seed": 1, "table": "chains", "protocol": "full", "label": made.label, "row": PLACE[0]}
    assert own.items() <= given["config"].items()
    lines = [call.args[0] for call in run.log.call_args_list]
    assert lines == [{"epoch": i, "test/perplexity": v} for i, v in enumerate((9.0, 7.0, 8.0))]
    axes = {call.args[0]: call.kwargs for call in run.define_metric.call_args_list}
    assert axes["test/perplexity"] == {"step_metric": "epoch", "summary": "min,last"}
    (outcome,) = run.summary.update.call_args.args
    assert (outcome["result"]["best"], outcome["parameters"]["total"]) == (7, 37634)
    run.finish.assert_called_once()


@pytest.mark.usefixtures("offline")
def test_table_is_rebuilt_without_duplicates(chains, capsys):
    """The order is that of its rows; records of other rows are left out."""
    for row, instance in (PLACE, (ROWS[0], "seed0"), ("digits/implicit", "seed0")):
        chains.publish(row, instance)
    for _ in range(2):
        assert chains.export() == 0
    assert len(list((chains.runs / ".wandb/wandb").glob("offline-run-*/run-*.wandb"))) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:-1] == ["chains/implicit seed0", "chains/upg_k5_d0.5 seed1"]
    assert lines[-1].startswith("2 runs; to send them: wandb sync ")


def test_nothing_to_export(chains):
    with pytest.raises(UserError, match="no run of chains is finished: "):
        chains.export()


@pytest.fixture
def report():
    pytest.importorskip("wandb_workspaces.reports.v2")
    text = record(ROWS[1], "seed0", [0.5], result=Result("perplexity", 9, 1, 9, mode="min"))
    curves = {"validation/loss": [1.0], "precision/step": [0], "precision/cosine": [0.5]}
    records = [record(ROWS[0], "seed0", [0.5]), replace(text, curves={**text.curves, **curves})]
    return export_wandb.build_report("chains", records, "# Chains")


def test_report_groups_by_row_and_has_a_panel_for_each_metric(report):
    assert report.title == "phantomgrad: chains"
    assert report.description == "2 finished runs, grouped by row"
    spec = json.loads(report._to_model().spec.model_dump_json(by_alias=True, exclude_none=True))
    text, grid = (block for block in spec["blocks"] if block["type"] != "paragraph")
    assert text["content"] == "# Chains"
    (runs,) = grid["metadata"]["runSets"]
    assert runs["grouping"] == [{"section": "run", "name": "group"}]
    (chosen,) = runs["filters"]["filters"]
    assert (chosen["key"]["name"], chosen["op"], chosen["value"]) == ("group", "IN", ROWS)
    panels = grid["metadata"]["panelBankSectionConfig"]["panels"]
    assert [(p["config"]["metrics"], p["config"].get("xAxis")) for p in panels] == [
        (["summary_metrics.test/accuracy.max"], None),
        (["summary_metrics.test/perplexity.min"], None),
        (["precision/cosine"], "precision/step"),
        (["test/accuracy"], "epoch"),
        (["train/loss"], "epoch"),
        (["validation/loss"], "epoch"),
    ]
    assert {panel["config"]["groupBy"] for panel in panels} == {"group"}
    assert len({(p["layout"]["x"], p["layout"]["y"]) for p in panels}) == len(panels)


@pytest.mark.parametrize("earlier", [None, "an id"])
def test_sent_report_replaces_the_one_with_its_title(report, chains, monkeypatch, earlier):
    """A client without a server records what would be sent."""
    others = [SimpleNamespace(display_name="another", id="x")]
    if earlier:
        others.append(SimpleNamespace(display_name="phantomgrad: chains", id=earlier))
    sent = []
    api = SimpleNamespace(default_entity="us", reports=lambda path: sent.append(path) or others)
    monkeypatch.setattr(wandb, "Api", lambda: api)
    monkeypatch.setattr(export_wandb, "rebuild", lambda *_, **where: sent.append(where))
    monkeypatch.setattr(
        type(report), "save", lambda self: sent.append(self) or SimpleNamespace(url="the address")
    )
    chains.publish(*PLACE)
    (chains.results / "tables").mkdir(parents=True)
    (chains.results / "tables/chains.md").write_text("# As make report wrote it")
    assert chains.export("--online", "--project", "mine") == 0
    run, asked, saved = sent
    assert run == {"project": "mine", "entity": None, "mode": "online"}
    assert asked == "us/mine"
    assert (saved.entity, saved.project, saved.id) == ("us", "mine", earlier or "")
    assert saved.blocks[0].text == "# As make report wrote it"
