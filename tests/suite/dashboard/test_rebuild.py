"""Runs of wandb made from records, read back from the files that ``wandb sync`` would send."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from dashboard.workshop import Workshop
from report.conftest import record
from wandb_files import read_offline

from phantomgrad_suite.callbacks.wandb_naming import protocol, run_id, table_of, tags
from phantomgrad_suite.dashboard.command import main
from phantomgrad_suite.dashboard.rebuild import history, rebuild, summary
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Result, write_record

PLACE = ("toy/upg", "seed1")


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """wandb without network."""
    module = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield module
    module.finish()
    module.teardown()


def test_names() -> None:
    assert run_id(*PLACE) == "db14ce454c89acc6"
    assert run_id("toy", "upg/seed1") == run_id(*PLACE)
    assert run_id("toy/upg", "seed2") != run_id(*PLACE)
    assert table_of("table4/honest/cox2") == "table4"
    assert tags("table4/honest/cox2") == ["table4", "table4/honest/cox2"]
    assert tags("custom") == ["custom"]
    assert tags(f"toy/{'x' * 80}") == ["toy"]  # wandb refuses longer ones
    assert protocol([], "seed0-fold12345678") == "full"
    assert (
        protocol([], "seed0-fold1-abcdef12") == protocol(["3 of 50 epochs"], "seed0") == "reduced"
    )


def test_history_and_summary() -> None:
    curves = {"precision/step": [0, 50], "precision/cosine": [0.5, None], "gradient/radius": [0.7]}
    found = record(*PLACE, [0.5, None])
    found = replace(found, curves={**found.curves, **curves})
    assert list(history(found)) == [
        {"epoch": 0, "test/accuracy": 0.5, "train/loss": 1.0, "gradient/radius": 0.7},
        {"epoch": 1, "train/loss": 0.5},
        {"precision/step": 0, "precision/cosine": 0.5},
        {"precision/step": 50},
    ]
    out = summary(replace(found, result=Result("perplexity", 9.5, 3, 10.0, mode="min")))
    assert (out["metric"], out["best"], out["best_epoch"], out["last"]) == (
        "perplexity",
        9.5,
        3,
        10,
    )
    assert "selected" not in out  # there is none
    assert (out["parameters/total"], out["cost/seconds_epoch"]) == (37634, 0.4)


def test_run_is_what_its_record_says(tmp_path: Path, wandb: ModuleType) -> None:
    made = record(*PLACE, [0.5, 0.75, 0.625], config={"run": {"gradient": "upg"}, "seed": 1})
    rebuild(made, tmp_path, project="mine", entity="us")
    wandb.teardown()
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    found = read_offline(path)
    run = found.run
    assert (run.run_id, run.project, run.entity) == (run_id(*PLACE), "mine", "us")
    assert (run.run_group, run.display_name, run.job_type) == ("toy/upg", "seed1", "upg")
    assert list(run.tags) == ["toy", "toy/upg"]
    own = {"seed": 1, "table": "toy", "protocol": "full", "label": made.label, "row": "toy/upg"}
    assert own.items() <= found.config.items()
    assert [line["test/accuracy"] for line in found.history] == [0.5, 0.75, 0.625]
    assert [line["epoch"] for line in found.history] == [0, 1, 2]
    assert found.summary["test/accuracy"] == {"max": 0.75, "last": 0.625}
    assert (found.summary["best"], found.summary["parameters/trainable"]) == (0.75, 27010)
    assert found.metrics["test/accuracy"].step_metric == "epoch"
    assert found.metrics["train/*"].step_metric == "epoch"
    assert found.exit_code == 0


def test_perplexity_is_best_where_it_is_small(tmp_path: Path, wandb: ModuleType) -> None:
    curves: dict[str, list[float]] = {"test/perplexity": [9.0, 7.0, 8.0]}
    made = record(*PLACE, [0.5], curves=curves, result=Result("perplexity", 7, 2, 8, mode="min"))
    rebuild(made, tmp_path, project="mine")
    wandb.teardown()
    (path,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert read_offline(path).summary["test/perplexity"] == {"min": 7, "last": 8}


def test_table_is_rebuilt_without_doubles(
    workshop: Workshop, wandb: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (PLACE, ("toy/implicit", "seed0"), ("toy/elsewhere", "seed0")):
        path = workshop.results / "records" / place[0] / f"{place[1]}.json"
        write_record(record(*place, [0.5]), path)
    arguments = ["wandb", "table=toy", f"runs={workshop.runs}", f"results={workshop.results}"]
    for _ in range(2):
        assert main(arguments, workshop.path / "configs") == 0
    files = list((workshop.runs / ".wandb/wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2  # of the rows of the table, each once
    said = capsys.readouterr().out.splitlines()
    assert said[-3:-1] == ["toy/implicit seed0", "toy/upg seed1"]
    assert said[-1].startswith("2 runs; with an account: wandb sync ")


def test_what_is_missing_is_said_in_a_line(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb")
    arguments = ["wandb", "table=toy", f"runs={workshop.runs}", f"results={workshop.results}"]
    assert main(arguments, workshop.path / "configs") == 1
    assert "no run of toy is finished: python scripts/train.py" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", None)
    assert main([*arguments, "--online"], workshop.path / "configs") == 1
    assert "needs the package wandb-workspaces: install it" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"^this needs the package wandb: install it"):
        rebuild(record(*PLACE, [0.5]), workshop.path, project="mine")


def test_online_without_an_account_is_said_in_a_line(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, wandb: ModuleType
) -> None:
    monkeypatch.setenv("HOME", str(workshop.path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(UserError, match=r"^wandb: .*(API key|api_key)"):
        rebuild(record(*PLACE, [0.5]), workshop.path, project="mine", online=True)
