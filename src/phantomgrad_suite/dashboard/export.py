"""A table on wandb: its finished runs, and with an account its report."""

from __future__ import annotations

from pathlib import Path

from phantomgrad_suite.callbacks.wandb_naming import table_of
from phantomgrad_suite.dashboard.live import Places
from phantomgrad_suite.dashboard.plan import expected
from phantomgrad_suite.dashboard.publish import build_report, report_module, send
from phantomgrad_suite.dashboard.rebuild import rebuild, said_in_a_line, wandb_module
from phantomgrad_suite.report.inputs import read_runs
from phantomgrad_suite.report.markdown import render
from phantomgrad_suite.report.tables import load
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record


def export(
    table: str,
    places: Places,
    results: Path,
    *,
    project: str,
    entity: str | None = None,
    online: bool = False,
) -> None:
    """Rebuild the runs of a table from their records; with ``online`` send them, and its report.

    Args:
        table: a file of ``configs/table``.
        places: where its rows are defined, and where its records are.
        results: the folder of results, with the paper's numbers.
        project: of wandb.
        entity: the user or team there; ``None`` for the default one.
        online: send all; else files are written for ``wandb sync``.

    Raises:
        UserError: no run of the table is finished, a record cannot be used, or wandb refuses.
    """
    wandb = wandb_module()
    if online:
        report_module()  # if it is missing, that is better said before some hundred runs are sent
    rows = list(dict.fromkeys(row for row, _ in expected(places.configs, table)))
    records = finished(rows, places.records)
    if not records:
        raise UserError(f"no run of {table} is finished: python scripts/train.py table={table}")
    folder = places.runs / ".wandb"
    for record in records:
        rebuild(record, folder, project=project, entity=entity, online=online)
        print(f"{record.row} {record.instance}", flush=True)
    wandb.teardown()  # waits until all is written
    if not online:
        print(f"{len(records)} runs; with an account: wandb sync {folder}/wandb/offline-run-*")
        return
    own = {"entity": entity} if entity else {}
    text = markdown(table_of(rows[0]), results)
    report = build_report(table, rows, records, text, project=project, **own)
    with said_in_a_line(wandb):
        print(f"{len(records)} runs and the report {send(report, wandb)}")


def finished(rows: list[str], folder: Path) -> list[Record]:
    """Return the records of some rows, in their order.

    Raises:
        UserError: a record cannot be used.
    """
    found = [
        record
        for name in dict.fromkeys(map(table_of, rows))
        for record in read_runs(folder, name)
        if record.row in rows
    ]
    return sorted(found, key=lambda record: rows.index(record.row))


def markdown(name: str, results: Path) -> str:
    """Return a table as the report prints it.

    Raises:
        UserError: the paper's numbers or a record cannot be used.
    """
    return render(load(results, name))
