"""Figures, drawn from the same tables as Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.figures import (
    along_training,
    bars,
    curves,
    dots,
    iterations,
    scaling,
    searches,
    sweeps,
    theorem_panels,
    violins,
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
    draw = _DRAWINGS.get(table.key, _of_runs)
    return draw(table) if table.sections else []


def _of_runs(table: Table) -> list[Drawing]:
    """Return the values of all rows, the curves of each block, and what training measured."""
    drawings = [Drawing(table.key, FIGURES["dots"], partial(dots.dot_figure, table))]
    for block in table.blocks:
        if curves.lines_with_curves(block):
            draw = partial(curves.curve_figure, table, block)
            caption = "; ".join(filter(None, (block.title, FIGURES["curves"])))
            drawings.append(Drawing(_name(table, block.key, "curves"), caption, draw))
    return drawings + _along_training(table)


def _along_training(table: Table) -> list[Drawing]:
    lines = [line for line in table.lines if along_training.measured(line)]
    drawings = []
    for line in lines:
        draw = partial(along_training.cosine_figure, table, line)
        caption = FIGURES["cosines"].format(name=f"{line.dataset}, {line.method}")
        drawings.append(Drawing(_name(table, line.row.split("/")[-1]), caption, draw))
    for dataset in dict.fromkeys(line.dataset for line in lines):
        mine = [line for line in lines if line.dataset == dataset]
        caption = FIGURES["radius"].format(dataset=dataset)
        draw = partial(along_training.radius_figure, mine)
        drawings.append(Drawing(_name(table, dataset.lower(), "radius"), caption, draw))
    return drawings


def _sweeps(table: Table) -> list[Drawing]:
    return [
        Drawing(
            _name(table, block.key),
            FIGURES["sweep"].format(title=sweeps.sweep_title(block)),
            partial(sweeps.sweep_figure, table, block),
        )
        for block in table.blocks
        if sweeps.grid_of(block)
    ]


def _searches(table: Table) -> list[Drawing]:
    found = [(block, searches.search_of(block)) for block in table.blocks]
    return [
        Drawing(
            _name(table, block.key),
            FIGURES["search"].format(title=search.chosen.line.dataset),
            partial(searches.search_figure, table, search),
        )
        for block, search in found
        if search
    ]


def _iterations(table: Table) -> list[Drawing]:
    names = [f"figure4_{record.setting['nonlinearity']}" for record in table.studies]
    return [
        Drawing(
            f"{name}_{record.instance}" if names.count(name) > 1 else name,
            FIGURES["figure4"].format(**record.setting),
            partial(iterations.iteration_figure, table, record),
        )
        for name, record in zip(names, table.studies, strict=True)
    ]


def _theorems(table: Table) -> list[Drawing]:
    draws = {
        "theorem1": ("theorems/descent", theorem_panels.descent_figure),
        "theorem2": ("theorems/series", theorem_panels.series_figure),
        "theorem3": ("theorems/sgd", theorem_panels.sgd_figure),
    }
    return [
        Drawing(name, FIGURES[name], partial(draw, record))
        for name, (row, draw) in draws.items()
        if (record := first_of(table.studies, row))
    ]


def _one(draw: Callable[[Table], Figure]) -> Callable[[Table], list[Drawing]]:
    return lambda table: [Drawing(table.key, FIGURES[table.key], partial(draw, table))]


_DRAWINGS: dict[str, Callable[[Table], Sequence[Drawing]]] = {
    "figure1": _one(violins.violin_figure),
    "figure2": _along_training,
    "figure3": _sweeps,
    "figure4": _iterations,
    "table2": _one(scaling.scaling_figure),
    "theorems": _theorems,
    "throughput": _one(bars.bar_figure),
    "tune": _searches,
}


def _name(table: Table, *parts: str) -> str:
    """Return the name of a file: that of the table, then ``parts`` without dots and slashes."""
    names = [part.replace("/", "_").replace(".", "") for part in parts if part]
    return "_".join([table.key, *names])
