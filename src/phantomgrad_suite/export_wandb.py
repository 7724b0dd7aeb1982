"""``scripts/export_wandb.py``: the finished runs of a table on wandb, and a report of the table."""

import itertools
import math
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import table_of
from phantomgrad_suite.runs.plan import expected, tables
from phantomgrad_suite.runs.records import Record
from phantomgrad_suite.runs.wandb_naming import define_metrics, names

_OUTCOME = ("result", "parameters", "seconds", "solver", "memory")
_PRECISION_AXIS = "precision/step"
_ONLY_THE_RECORD = {  # send nothing about this machine
    "disable_git": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "silent": True,
    "console": "off",
}


def main(arguments: Sequence[str]) -> int:
    """Rebuild the runs of a table as files for ``wandb sync``, or send them with a report."""
    parser = ArgumentParser(description="Put the finished runs of a table on wandb.")
    parser.add_argument("table", choices=tables(), metavar="TABLE")
    parser.add_argument("--online", action="store_true", help="send runs and a report now")
    parser.add_argument("--project", default="phantomgrad")
    parser.add_argument("--entity", help="user or team")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument("--results", type=Path, default=Path("runs/results"), metavar="DIR")
    options = parser.parse_args(arguments)
    rows = list(dict.fromkeys(row for row, _ in expected(options.table)))
    _export(rows, options)
    return 0


def _export(rows: Sequence[str], options: Namespace) -> None:
    import wandb

    found = Archive(options.results / "records").of(Record, *rows)
    records = [record for record in found if record.row in rows]
    if not records:
        raise UserError(
            f"no run of {options.table} is finished: python scripts/train.py table={options.table}"
        )
    folder = options.runs / ".wandb"
    mode = "online" if options.online else "offline"
    try:
        if options.online:  # built first: a missing package is reported before anything is sent
            written = options.results / "tables" / f"{table_of(rows[0])}.md"
            text = written.read_text() if written.exists() else ""
            report = build_report(options.table, records, text)
        for record in records:
            rebuild(record, folder, project=options.project, entity=options.entity, mode=mode)
            print(f"{record.row} {record.instance}", flush=True)
        wandb.teardown()  # waits until everything is written
        if options.online:
            address = send(report, wandb.Api(), options.project, options.entity)
            print(f"{len(records)} runs and the report {address}")
        else:
            print(f"{len(records)} runs; to send them: wandb sync {folder}/wandb/offline-run-*")
    except wandb.Error as error:
        raise UserError(f"wandb: {str(error).strip().splitlines()[0]}") from error


def rebuild(record: Record, folder: Path, **destination: Any) -> None:
    """Make the run of a record, with the id that the logger gives it, in place of an earlier one.

    ``destination`` is ``project``, ``entity`` and ``mode`` of ``wandb.init``.
    """
    import wandb

    facts = asdict(record)
    config, _ = facts.pop("config"), facts.pop("curves")
    outcome = {name: facts.pop(name) for name in _OUTCOME}
    named = names(record.row, record.instance, record.label.get("dataset", "unknown data"))
    for old in (folder / "wandb").glob(f"*run-*-{named['id']}"):
        shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        **{**named, **destination, "config": {**config, **facts, **named["config"]}},
        job_type=config.get("runtime", {}).get("run", {}).get("gradient"),
        dir=str(folder),
        reinit="finish_previous",
        settings=_ONLY_THE_RECORD,
    )
    define_metrics(run, record.result.metric, record.result.mode)
    run.define_metric("precision/*", step_metric=_PRECISION_AXIS)
    for values in history(record):
        run.log(values)
    run.summary.update(outcome)
    run.finish()


def history(record: Record) -> Iterator[dict[str, float]]:
    """Yield the values of each epoch, from 0 as the logger counts, then those of each step."""
    for by_step in (False, True):
        curves = {
            n: c
            for n, c in record.curves.items()
            if n.startswith("precision/") == by_step and not n.startswith("example/")
        }
        for position, values in enumerate(itertools.zip_longest(*curves.values())):
            known = dict(zip(curves, values, strict=True))
            finite = {n: v for n, v in known.items() if v is not None and math.isfinite(v)}
            yield finite if by_step else {"epoch": position, **finite}


def build_report(table: str, records: Sequence[Record], text: str) -> Any:
    """Return a report, not sent yet: the table as text, bar charts, and a panel for each curve."""
    try:
        wr: Any = import_module("wandb_workspaces.reports.v2")
    except ModuleNotFoundError as error:
        raise UserError("--online needs the package wandb-workspaces: make env") from error
    grouped = {"groupby": "Group", "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    panels = []
    for metric, mode in dict.fromkeys((r.result.metric, r.result.mode) for r in records):
        best = wr.SummaryMetric(f"test/{metric}.{mode}")
        panels.append(wr.BarPlot(title=f"best test/{metric}", metrics=[best], **grouped))
    for name in sorted({name for r in records for name in r.curves} - {_PRECISION_AXIS}):
        if name.startswith("example/"):
            continue
        axis = _PRECISION_AXIS if name.startswith("precision/") else "epoch"
        panels.append(wr.LinePlot(title=name, x=axis, y=[name], **grouped))
    for position, panel in enumerate(panels):
        panel.layout = wr.Layout(x=12 * (position % 2), y=7 * (position // 2), w=12, h=7)
    rows = list(dict.fromkeys(record.row for record in records))
    runs = wr.Runset(name=table, filters=f"Group in {rows}", groupby=["group"])
    return wr.Report(
        project="",
        entity="",  # both are set when it is sent; without them an account would be looked up here
        title=f"phantomgrad: {table}",
        description=f"{len(records)} finished runs, grouped by row",
        blocks=[wr.MarkdownBlock(text=text), wr.PanelGrid(runsets=[runs], panels=panels)],
        width="fluid",
    )


def send(report: Any, api: Any, project: str, entity: str | None) -> str:
    """Send a report in place of an earlier one with its title; return its address."""
    report.project, report.entity = project, entity or api.default_entity
    for earlier in api.reports(f"{report.entity}/{project}"):
        if earlier.display_name == report.title:
            report.id = earlier.id
    return str(report.save().url)
