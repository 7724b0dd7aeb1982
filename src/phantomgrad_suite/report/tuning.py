"""A search over λ: validation objective by λ, and test values of few, from records alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from phantomgrad_suite.report.layout import Block, Line, Table
from phantomgrad_suite.report.style import INK, LINES, MUTED, SELECTED, bare, legend, titled
from phantomgrad_suite.report.summary import Stat, objective_of

PAPER_DAMPINGS = (0.5, 0.8, 1.0)
_ROW = re.compile(r"(upg|npg)_k(\d+)_d([\d.]+)$")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_RING: dict[str, Any] = {
    "marker": "o",
    "linestyle": "none",
    "markersize": 11,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
}


@dataclass(frozen=True)
class _Trial:
    """A trial: its form, k and λ, and its runs.

    Attributes:
        values: the validation objective of each run, at its best epoch, by instance.
    """

    form: str
    steps: int
    damping: float
    line: Line
    values: dict[str, float]

    @property
    def name(self) -> str:
        return f"{self.form}, k = {self.steps}"

    @property
    def mean(self) -> float:
        return sum(self.values.values()) / len(self.values)

    @property
    def tested(self) -> Stat | None:
        """The test value at the epoch selected on validation data."""
        return self.line.summary.selected if self.line.summary else None


@dataclass(frozen=True)
class _Search:
    """The trials that may be compared: as many runs each, by one objective."""

    objective: str
    sign: int
    trials: tuple[_Trial, ...]

    @property
    def chosen(self) -> _Trial:
        return min(self.trials, key=lambda trial: (self.sign * trial.mean, trial.damping))

    @property
    def names(self) -> list[str]:
        """Form and k of the trials, one colour each."""
        return sorted({trial.name for trial in self.trials})

    def shifted(self) -> list[tuple[_Trial, float]]:
        """Return the runs' values, shifted so that each instance has the mean of all."""
        overall = sum(t.mean for t in self.trials) / len(self.trials)
        found = []
        for instance in self.trials[0].values:
            mean = sum(t.values[instance] for t in self.trials) / len(self.trials)
            found += [(t, t.values[instance] - mean + overall) for t in self.trials]
        return found


def tuning_figures(table: Table) -> dict[str, Figure]:
    """Return a figure for each search: the objective by λ, and beside it what the test says.

    Of the test values only those of the chosen trial and of the paper's λ are drawn.
    """
    drawn = {}
    for block in table.blocks:
        search = _search(block)
        if search is not None:
            name = f"{table.name}_{block.key}".replace("/", "_").replace(".", "")
            drawn[name] = _figure(table, block, search)
    return drawn


def _search(block: Block) -> _Search | None:
    """Return the trials of a block with the most runs, and of the variant that most are of."""
    found = [trial for line in block.lines if (trial := _trial(line))]
    if not found:
        return None
    variants = [trial.line.variant for trial in found]
    usual = max(dict.fromkeys(variants), key=variants.count)
    mine = [trial for trial in found if trial.line.variant == usual]
    instances = max((set(trial.values) for trial in mine), key=len)
    whole = tuple(trial for trial in mine if set(trial.values) == instances)
    assert whole[0].line.summary is not None
    objective = objective_of(whole[0].line.summary.records[0])
    assert objective is not None
    return _Search(objective.curve, objective.sign, whole)


def _trial(line: Line) -> _Trial | None:
    match = _ROW.search(line.row)
    if match is None or line.summary is None:
        return None
    found = {r.instance: objective_of(r) for r in line.summary.records}
    values = {instance: objective.value for instance, objective in found.items() if objective}
    if not values or len(values) < len(found):
        return None
    form, steps, damping = match.groups()
    return _Trial(form.upper(), int(steps), float(damping), line, values)


def _figure(table: Table, block: Block, search: _Search) -> Figure:
    figure = Figure(figsize=(8.4, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1.9, 1]})
    styles = {
        name: (color, marker)
        for name, (color, _), marker in zip(search.names, LINES[1:], _MARKERS, strict=False)
    }
    _objective_panel(left, search, styles)
    _test_panel(right, search, styles)
    line = search.chosen.line
    reduced = f" {line.variant[0].upper()}{line.variant[1:]}." if line.variant else ""
    titled(figure, f"{table.title}, {line.dataset}")
    runs = len(search.chosen.values)
    _legend(
        figure,
        styles,
        f"{len(search.trials)} trials of {runs} run{'s' * (runs > 1)} each; whiskers: ± one "
        f"standard deviation.{reduced}",
    )
    return figure


def _objective_panel(axes: Axes, search: _Search, styles: dict[str, tuple[str, str]]) -> None:
    for damping in PAPER_DAMPINGS:
        axes.axvline(damping, color=MUTED, linestyle=(0, (1, 2)), linewidth=1, zorder=0)
    for trial, value in search.shifted():
        color, _ = styles[trial.name]
        axes.plot(trial.damping, value, ".", color=color, alpha=0.35, markersize=3.5)
    for trial in search.trials:
        color, marker = styles[trial.name]
        axes.plot(trial.damping, trial.mean, marker, color=color, markersize=5)
    chosen = search.chosen
    axes.plot(chosen.damping, chosen.mean, **_RING)
    axes.set_title("(a) Validation")
    axes.set_xlabel(r"$\lambda$")
    better = "↓" if search.sign > 0 else "↑"
    axes.set_ylabel(f"{search.objective.replace('/', ' ')}, best epoch {better}")
    bare(axes, "y")


def _test_panel(axes: Axes, search: _Search, styles: dict[str, tuple[str, str]]) -> None:
    """Draw what was asked of the test data: the chosen trial, and the paper's λ."""
    chosen = search.chosen
    papers = [t for t in search.trials if t.damping in PAPER_DAMPINGS and t is not chosen]
    shown = [chosen, *sorted(papers, key=lambda t: (t.damping, t.steps))]
    labels = []
    for place, trial in enumerate(shown):
        color, marker = styles[trial.name]
        labels.append(rf"$\lambda = {trial.damping:g}$" + f"\nk = {trial.steps}")
        if trial.tested is None:
            continue
        scale = trial.line.metric.scale
        axes.errorbar(
            place,
            trial.tested.mean * scale,
            yerr=trial.tested.std * scale or None,
            fmt=marker,
            color=color,
            markersize=5,
            elinewidth=1.1,
            capsize=2.2,
        )
        if trial is chosen:
            axes.plot(place, trial.tested.mean * scale, **_RING)
    axes.set_xticks(range(len(shown)), labels)
    axes.margins(x=0.15)
    axes.set_title("(b) Test")
    axes.set_ylabel(f"{chosen.line.metric.heading}\n{SELECTED.label}")
    bare(axes, "y")


def _legend(figure: Figure, styles: dict[str, tuple[str, str]], title: str) -> None:
    handles = [
        Line2D([], [], color=color, marker=marker, linestyle="none", markersize=5, label=name)
        for name, (color, marker) in styles.items()
    ]
    color = next(iter(styles.values()))[0]
    handles += [
        Line2D(
            *([], []),
            color=color,
            marker=".",
            linestyle="none",
            alpha=0.5,
            label="single runs, without what folds differ by",
        ),
        Line2D([], [], label="chosen on validation data", **_RING),
        Line2D([], [], color=MUTED, linestyle=(0, (1, 2)), label="λ of the paper"),
    ]
    legend(figure, handles, len(handles), title)
