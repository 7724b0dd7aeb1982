"""The report of a table on wandb: a panel for each metric, a curve for each row, and the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from phantomgrad_suite.callbacks.wandb_naming import AXIS
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record

_FIRST = ("test/", "train/", "validation/")
_WIDTH, _HEIGHT, _COLUMNS = 12, 7, 2


def report_module() -> Any:
    """Return the part of wandb-workspaces that makes reports.

    Raises:
        UserError: it is not installed.
    """
    try:
        import wandb_workspaces.reports.v2 as reports
    except ModuleNotFoundError as error:
        raise UserError(
            "a report needs the package wandb-workspaces: install it (`make env`)"
        ) from error
    return reports


def build_report(
    table: str,
    rows: Sequence[str],
    records: Sequence[Record],
    text: str,
    *,
    project: str,
    **of: str,
) -> Any:
    """Return the report of a table, not sent yet.

    Args:
        table: its name.
        rows: the rows that its definition lists.
        records: of its finished runs, which say what there is to draw.
        text: the table itself, in Markdown.
        project: of wandb.
        of: ``entity``, the user or team there.

    Raises:
        UserError: wandb-workspaces is not installed.
    """
    wr = report_module()
    runs = wr.Runset(name=table, filters=_any_of(rows), groupby=["group"])
    grid = wr.PanelGrid(runsets=[runs], panels=[*_bars(wr, records), *_lines(wr, records)])
    for position, panel in enumerate(grid.panels):
        x, y = _WIDTH * (position % _COLUMNS), _HEIGHT * (position // _COLUMNS)
        panel.layout = wr.Layout(x=x, y=y, w=_WIDTH, h=_HEIGHT)
    return wr.Report(
        project=project,
        entity=of.get("entity", ""),
        title=title(table),
        description=f"{len(rows)} rows, {len(records)} finished runs; grouped by row.",
        blocks=[wr.MarkdownBlock(text=text), grid],
        width="fluid",
    )


def title(table: str) -> str:
    """Return the title of a report, by which it is found again."""
    return f"phantomgrad: {table}"


def send(report: Any, wandb: Any) -> str:
    """Send a report, in the place of an earlier one of its title; return its address."""
    api = wandb.Api()
    report.entity = report.entity or api.default_entity
    earlier = api.reports(f"{report.entity}/{report.project}")
    for found in earlier:
        if found.display_name == report.title:
            report.id = found.id
            break
    return str(report.save().url)


def _any_of(rows: Iterable[str]) -> str:
    return f"Group in [{', '.join(repr(row) for row in rows)}]"


def _bars(wr: Any, records: Iterable[Record]) -> list[Any]:
    """Return the best test value of each row, for each metric that tables print."""
    best = dict.fromkeys((record.result.metric, record.result.mode) for record in records)
    return [
        wr.BarPlot(
            title=f"best test/{metric}",
            metrics=[wr.SummaryMetric(f"test/{metric}.{mode}")],
            groupby="Group",
            groupby_aggfunc="mean",
            groupby_rangefunc="stddev",
        )
        for metric, mode in best
    ]


def _lines(wr: Any, records: Iterable[Record]) -> list[Any]:
    names = {name for record in records for name in record.curves}
    return [
        wr.LinePlot(
            title=name,
            x="precision/step" if name.startswith("precision/") else AXIS,
            y=[name],
            groupby="Group",
            groupby_aggfunc="mean",
            groupby_rangefunc="stddev",
        )
        for name in sorted(names - {"precision/step"}, key=_place)
    ]


def _place(name: str) -> tuple[int, str]:
    """Return where a metric comes: what is tested first, then what is trained."""
    found = [place for place, prefix in enumerate(_FIRST) if name.startswith(prefix)]
    return (found[0] if found else len(_FIRST), name)
