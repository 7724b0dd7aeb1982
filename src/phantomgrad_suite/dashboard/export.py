"""The finished runs of a table on wandb, made from their records, and a report of the table."""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import wandb

from phantomgrad_suite.dashboard.plan import Places, expected
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record, RecordError, read_record
from phantomgrad_suite.runs.wandb_naming import AXIS, define_metrics, run_id, table_of, tags

_PRECISION_AXIS = "precision/step"
_FACTS = (
    *("row", "instance", "label", "protocol", "changes", "config_hash"),
    *("data", "environment", "started", "finished"),
)


def export(table: str, places: Places, project: str, entity: str | None, online: bool) -> None:
    """Rebuild the runs of a table as files for ``wandb sync``, or send them with a report.

    The report shows the table as ``make report`` wrote it last.

    Raises:
        UserError: no run of the table is finished, a record cannot be used, or wandb refuses.
    """
    rows = list(dict.fromkeys(row for row, _ in expected(places.configs, table)))
    paths = [path for row in rows for path in sorted((places.records / row).glob("*.json"))]
    folder = places.runs / ".wandb"
    if not paths:
        raise UserError(f"no run of {table} is finished: python scripts/train.py table={table}")
    try:
        records = [read_record(path) for path in paths]
        if online:  # built first: a missing package is reported before anything is sent
            written = places.records.parent / "tables" / f"{table_of(rows[0])}.md"
            text = written.read_text() if written.exists() else ""
            report = build_report(table, rows, records, project, text)
        for record in records:
            mode = "online" if online else "offline"
            rebuild(record, folder, project=project, entity=entity, mode=mode)
            print(f"{record.row} {record.instance}", flush=True)
        wandb.teardown()  # waits until everything is written
        if online:
            print(f"{len(records)} runs and the report {send(report, wandb.Api(), entity)}")
        else:
            print(f"{len(records)} runs; to send them: wandb sync {folder}/wandb/offline-run-*")
    except RecordError as error:
        raise UserError(str(error)) from error
    except wandb.Error as error:
        raise UserError(f"wandb: {str(error).strip().splitlines()[0]}") from error


def rebuild(record: Record, folder: Path, **destination: Any) -> None:
    """Make the run of a record: its configuration, its curves by epoch, and its result.

    It has the id that the logger gives it and replaces what was logged or rebuilt before.
    ``destination`` is ``project``, ``entity`` and ``mode`` of ``wandb.init``.
    """
    identity = run_id(record.row, record.instance)
    for old in (folder / "wandb").glob(f"*run-*-{identity}"):
        shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {name: getattr(record, name) for name in _FACTS}
    run = wandb.init(
        **destination,
        id=identity,
        group=record.row,
        name=record.instance,
        job_type=record.config["runtime"]["run"].get("gradient"),
        tags=tags(record.row),
        config={**record.config, **facts, "table": table_of(record.row)},
        dir=str(folder),
        reinit="finish_previous",
        settings=wandb.Settings(  # only what the record holds, nothing of this machine
            silent=True,
            console="off",
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        ),
    )
    result = record.result
    define_metrics(run, result.metric, result.mode)
    run.define_metric("precision/*", step_metric=_PRECISION_AXIS)
    for values in history(record):
        run.log(values)
    numbers = {
        "": {
            k: v for k, v in asdict(result).items() if k == "metric" or isinstance(v, int | float)
        },
        "parameters/": record.parameters,
        "cost/seconds_": record.seconds,
        "solver_mean/": record.solver,
        "cost/memory_": record.memory,
    }
    for prefix, values in numbers.items():
        run.summary.update({f"{prefix}{name}": value for name, value in values.items()})
    run.finish()


def history(record: Record) -> Iterator[dict[str, float]]:
    """Yield the values of each epoch, from 0 as the logger counts, then those of each step."""
    for by_step in (False, True):
        curves = {n: c for n, c in record.curves.items() if n.startswith("precision/") == by_step}
        for position, values in enumerate(itertools.zip_longest(*curves.values())):
            known = dict(zip(curves, values, strict=True))
            finite = {n: v for n, v in known.items() if v is not None and math.isfinite(v)}
            yield finite if by_step else {AXIS: position, **finite}


def build_report(
    table: str, rows: Sequence[str], records: Sequence[Record], project: str, text: str
) -> Any:
    """Return a report, not sent yet: the table as text, bar charts, and a panel for each curve."""
    wr: Any = import_module("wandb_workspaces.reports.v2")
    grouped = {"groupby": "Group", "groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    panels = []
    for metric, mode in dict.fromkeys((r.result.metric, r.result.mode) for r in records):
        best = wr.SummaryMetric(f"test/{metric}.{mode}")
        panels.append(wr.BarPlot(title=f"best test/{metric}", metrics=[best], **grouped))
    names = {name for record in records for name in record.curves} - {_PRECISION_AXIS}
    order = ("test", "train", "validation")
    for name in sorted(names, key=lambda n: ([not n.startswith(f"{part}/") for part in order], n)):
        axis = _PRECISION_AXIS if name.startswith("precision/") else AXIS
        panels.append(wr.LinePlot(title=name, x=axis, y=[name], **grouped))
    for position, panel in enumerate(panels):
        panel.layout = wr.Layout(x=12 * (position % 2), y=7 * (position // 2), w=12, h=7)
    runs = wr.Runset(name=table, filters=f"Group in {list(rows)}", groupby=["group"])
    return wr.Report(
        project=project,
        entity="",  # set when it is sent; without it an account would be looked up here
        title=f"phantomgrad: {table}",
        description=f"{len(rows)} rows, {len(records)} finished runs; grouped by row.",
        blocks=[wr.MarkdownBlock(text=text), wr.PanelGrid(runsets=[runs], panels=panels)],
        width="fluid",
    )


def send(report: Any, api: Any, entity: str | None) -> str:
    """Send a report in place of an earlier one with its title; return its address."""
    report.entity = entity or api.default_entity
    for earlier in api.reports(f"{report.entity}/{report.project}"):
        if earlier.display_name == report.title:
            report.id = earlier.id
            break
    return str(report.save().url)
