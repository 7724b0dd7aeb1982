"""A search over λ: the validation objective by λ, and the test values of a few trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phantomgrad_suite.report.experiments.lines import Gradient, Line
from phantomgrad_suite.report.experiments.runs import Runs, objective_of
from phantomgrad_suite.report.figures.dots import SELECTED
from phantomgrad_suite.report.figures.style import (
    DOTTED,
    INK,
    LINES,
    Look,
    bare,
    handle,
    legend,
    looks,
    panels,
)
from phantomgrad_suite.report.table import Block, Table

PAPER_DAMPINGS = (0.5, 0.8, 1.0)
_RING: dict[str, Any] = {
    "marker": "o",
    "linestyle": "none",
    "markersize": 11,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
}


@dataclass(frozen=True)
class Trial:
    """A trial of a search: a gradient, its runs, and their objective by instance."""

    line: Line
    gradient: Gradient
    runs: Runs
    values: dict[str, float]

    @property
    def name(self) -> str:
        """Form and k."""
        return f"{self.gradient.form}, k = {self.gradient.steps}"

    @property
    def mean(self) -> float:
        """The mean objective over the runs."""
        return sum(self.values.values()) / len(self.values)


@dataclass(frozen=True)
class Search:
    """The comparable trials of a search: of one variant, with the same runs."""

    objective: str
    sign: int
    trials: tuple[Trial, ...]

    @property
    def chosen(self) -> Trial:
        """The trial with the best mean objective."""
        return min(self.trials, key=lambda trial: (self.sign * trial.mean, trial.gradient.damping))

    def shifted(self) -> list[tuple[Trial, float]]:
        """Return the objectives of all runs, shifted so that each instance has the same mean."""
        overall = sum(trial.mean for trial in self.trials) / len(self.trials)
        found = []
        for instance in self.trials[0].values:
            mean = sum(t.values[instance] for t in self.trials) / len(self.trials)
            found += [(t, t.values[instance] - mean + overall) for t in self.trials]
        return found


def search_of(block: Block) -> Search | None:
    """Return the search of a block: the trials of the usual variant with the most runs."""
    found = [t for row in block.rows if row.line and (t := _trial(row.line))]
    if not found:
        return None
    variants = [trial.line.variant for trial in found]
    usual = max(dict.fromkeys(variants), key=variants.count)
    trials = [trial for trial in found if trial.line.variant == usual]
    instances = max((set(trial.values) for trial in trials), key=len)
    complete = tuple(trial for trial in trials if set(trial.values) == instances)
    objective = objective_of(complete[0].runs.first)
    assert objective is not None
    return Search(objective.curve, objective.sign, complete)


def _trial(line: Line) -> Trial | None:
    if line.gradient is None or line.runs is None:
        return None
    found = {r.instance: objective_of(r) for r in line.runs.records}
    values = {instance: objective.value for instance, objective in found.items() if objective}
    return Trial(line, line.gradient, line.runs, values) if len(values) == len(found) else None


def search_figure(table: Table, search: Search) -> Figure:
    """Return the objective by λ, and the test values of the chosen trial and of the paper's λ."""
    line, runs = search.chosen.line, len(search.chosen.values)
    title = f"{table.title}, {line.dataset}"
    figure, grid = panels(1, 2, (8.4, 3.9), title, gridspec_kw={"width_ratios": [1.9, 1]})
    styles = looks(sorted({trial.name for trial in search.trials}), LINES[1:])
    for look in styles.values():
        look["linestyle"] = "none"
    _objective_panel(grid[0, 0], search, styles)
    _test_panel(grid[0, 1], search, styles)
    reduced = f" {line.variant[0].upper()}{line.variant[1:]}." if line.variant else ""
    single = {**next(iter(styles.values())), "marker": ".", "alpha": 0.5}
    handles = [
        *(handle(name, markersize=5, **look) for name, look in styles.items()),
        handle("single runs, without what folds differ by", **single),
        handle("chosen on validation data", **_RING),
        handle("λ of the paper", **DOTTED),
    ]
    note = (
        f"{len(search.trials)} trials of {runs} run{'s' * (runs > 1)} each; whiskers: ± one "
        f"standard deviation.{reduced}"
    )
    legend(figure, handles, len(handles), note)
    return figure


def _objective_panel(axes: Axes, search: Search, styles: dict[str, Look]) -> None:
    for damping in PAPER_DAMPINGS:
        axes.axvline(damping, linewidth=1, zorder=0, **DOTTED)
    for trial, value in search.shifted():
        color = styles[trial.name]["color"]
        axes.plot(trial.gradient.damping, value, ".", color=color, alpha=0.35, markersize=3.5)
    for trial in search.trials:
        axes.plot(trial.gradient.damping, trial.mean, markersize=5, **styles[trial.name])
    axes.plot(search.chosen.gradient.damping, search.chosen.mean, **_RING)
    axes.set_title("(a) Validation")
    axes.set_xlabel(r"$\lambda$")
    better = "↓" if search.sign > 0 else "↑"
    axes.set_ylabel(f"{search.objective.replace('/', ' ')}, best epoch {better}")
    bare(axes, "y")


def _test_panel(axes: Axes, search: Search, styles: dict[str, Look]) -> None:
    """Draw the only test values of a search: those of the chosen trial and of the paper's λ."""
    chosen = search.chosen
    papers = [t for t in search.trials if t.gradient.damping in PAPER_DAMPINGS and t is not chosen]
    shown = [chosen, *sorted(papers, key=lambda t: (t.gradient.damping, t.gradient.steps))]
    for place, trial in enumerate(shown):
        if (tested := trial.runs.selected) is None:
            continue
        scale, look = trial.runs.metric.scale, styles[trial.name]
        axes.errorbar(
            *(place, tested.mean * scale),
            yerr=tested.std * scale or None,
            markersize=5,
            elinewidth=1.1,
            capsize=2.2,
            **look,
        )
        if trial is chosen:
            axes.plot(place, tested.mean * scale, **_RING)
    gradients = [trial.gradient for trial in shown]
    labels = [rf"$\lambda = {g.damping:g}$" + f"\nk = {g.steps}" for g in gradients]
    axes.set_xticks(range(len(shown)), labels)
    axes.margins(x=0.15)
    axes.set_title("(b) Test")
    axes.set_ylabel(f"{chosen.runs.metric.heading}\n{SELECTED}")
    bare(axes, "y")
