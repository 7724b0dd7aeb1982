"""Figures, drawn from the same tables as Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.figures import (
    along_training,
    curves,
    dots,
    searches,
    study_figures,
    sweeps,
    theorem_figures,
)
from phantomgrad_suite.report.studies.theorems import first_of
from phantomgrad_suite.report.table import Table


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn: the name of its files, and its caption."""

    name: str
    caption: str
    draw: Callable[[], Figure]


def drawings_of(table: Table) -> list[Drawing]:
    """Return the figures of a table, none without its records."""
    make = _MAKERS.get(table.key, _of_runs)
    return list(make(table)) if table.sections else []


def _of_runs(table: Table) -> Iterator[Drawing]:
    """Yield the values of all rows, the curves of each block, and what training measured."""
    yield Drawing(table.key, FIGURES["dots"], partial(dots.dot_figure, table))
    for block in table.blocks:
        if curves.lines_with_curves(block):
            caption = "; ".join(filter(None, (block.title, FIGURES["curves"])))
            draw = partial(curves.curve_figure, table, block)
            yield Drawing(_name(table, block.key, "curves"), caption, draw)
    yield from _along_training(table)


def _along_training(table: Table) -> Iterator[Drawing]:
    lines = [line for line in table.lines if along_training.measured(line)]
    for line in lines:
        caption = FIGURES["cosines"].format(line=line)
        draw = partial(along_training.cosine_figure, table, line)
        yield Drawing(_name(table, line.row.split("/")[-1]), caption, draw)
    for dataset in dict.fromkeys(line.dataset for line in lines):
        mine = [line for line in lines if line.dataset == dataset]
        draw = partial(along_training.radius_figure, mine)
        caption = FIGURES["radius"].format(dataset=dataset)
        yield Drawing(_name(table, dataset.lower(), "radius"), caption, draw)


def _sweeps(table: Table) -> Iterator[Drawing]:
    for block in table.blocks:
        if rows := sweeps.rows_by_gradient(block):
            line = next(iter(rows.values())).line
            draw = partial(sweeps.sweep_figure, table, block)
            yield Drawing(_name(table, block.key), FIGURES["sweep"].format(line=line), draw)


def _searches(table: Table) -> Iterator[Drawing]:
    for block in table.blocks:
        if trials := searches.trials_of(block):
            caption = FIGURES["search"].format(line=trials[0].line)
            draw = partial(searches.search_figure, table, trials)
            yield Drawing(_name(table, block.key), caption, draw)


def _iterations(table: Table) -> Iterator[Drawing]:
    names = [f"figure4_{record.setting['nonlinearity']}" for record in table.studies]
    for name, record in zip(names, table.studies, strict=True):
        unique = f"{name}_{record.instance}" if names.count(name) > 1 else name
        draw = partial(study_figures.iteration_figure, table, record)
        yield Drawing(unique, FIGURES["figure4"].format(**record.setting), draw)


def _theorems(table: Table) -> Iterator[Drawing]:
    for name, (row, draw) in theorem_figures.FIGURES.items():
        if record := first_of(table.studies, row):
            yield Drawing(name, FIGURES[name], partial(draw, record))


def _one(draw: Callable[[Table], Figure]) -> Callable[[Table], list[Drawing]]:
    return lambda table: [Drawing(table.key, FIGURES[table.key], partial(draw, table))]


def _name(table: Table, *parts: str) -> str:
    """Return the name of a file: that of the table, then ``parts`` without dots and slashes."""
    names = [part.replace("/", "_").replace(".", "") for part in parts if part]
    return "_".join([table.key, *names])


_MAKERS: dict[str, Callable[[Table], Iterator[Drawing] | list[Drawing]]] = {
    "figure1": _one(study_figures.violin_figure),
    "figure2": _along_training,
    "figure3": _sweeps,
    "figure4": _iterations,
    "table2": _one(study_figures.scaling_figure),
    "theorems": _theorems,
    "throughput": _one(study_figures.bar_figure),
    "tune": _searches,
}
