"""A search over λ: the validation objective by λ, and the test values of a few trials."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phantomgrad_suite.report.experiments.lines import Gradient, Line
from phantomgrad_suite.report.experiments.runs import Runs, objective_of
from phantomgrad_suite.report.figures import style
from phantomgrad_suite.report.figures.dots import SELECTED
from phantomgrad_suite.report.table import Block, Table

PAPER_DAMPINGS = (0.5, 0.8, 1.0)
_RING: style.Look = {
    "marker": "o",
    "linestyle": "none",
    "markersize": 11,
    "markerfacecolor": "none",
    "markeredgecolor": style.INK,
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


def trials_of(block: Block) -> list[Trial]:
    """Return the comparable trials of a block: of the usual variant, with the most runs."""
    found = []
    for line in (row.line for row in block.rows):
        if line and line.runs and line.gradient:
            objectives = {r.instance: objective_of(r) for r in line.runs.records}
            values = {instance: o.value for instance, o in objectives.items() if o}
            if len(values) == len(objectives):
                found.append(Trial(line, line.gradient, line.runs, values))
    variants = [trial.line.variant for trial in found]
    usual = max(dict.fromkeys(variants), key=variants.count, default="")
    trials = [trial for trial in found if trial.line.variant == usual]
    instances = max((set(trial.values) for trial in trials), key=len, default=set())
    return [trial for trial in trials if set(trial.values) == instances]


def search_figure(table: Table, trials: list[Trial]) -> Figure:
    """Return the objective by λ, and the test values of the chosen trial and of the paper's λ."""
    objective = objective_of(trials[0].runs.first)
    assert objective is not None
    chosen = min(trials, key=lambda t: (objective.sign * t.mean, t.gradient.damping))
    line, n = chosen.line, len(chosen.values)
    title = f"{table.title}, {line.dataset}"
    figure, grid = style.panels(1, 2, (8.4, 3.9), title, gridspec_kw={"width_ratios": [1.9, 1]})
    names = sorted({trial.name for trial in trials})
    styles = style.looks(names, style.LINES[1:], linestyle="none")
    _objective_panel(grid[0, 0], trials, chosen, styles)
    better = "↓" if objective.sign > 0 else "↑"
    grid[0, 0].set_ylabel(f"{objective.curve.replace('/', ' ')}, best epoch {better}")
    _test_panel(grid[0, 1], trials, chosen, styles)
    single = {**styles[names[0]], "marker": ".", "alpha": 0.5}
    handles = [
        *(style.handle(name, markersize=5, **look) for name, look in styles.items()),
        style.handle("single runs, without what folds differ by", **single),
        style.handle("chosen on validation data", **_RING),
        style.handle("λ of the paper", **style.DOTTED),
    ]
    reduced = f" {line.variant[0].upper()}{line.variant[1:]}." if line.variant else ""
    runs = f"{len(trials)} trials of {n} run{'s' * (n > 1)} each"
    style.legend(figure, handles, f"{runs}; whiskers: ± one standard deviation.{reduced}")
    return figure


def _objective_panel(
    axes: Axes, trials: list[Trial], chosen: Trial, styles: dict[str, style.Look]
) -> None:
    """Draw means, and single runs shifted so that each instance has the same mean."""
    for damping in PAPER_DAMPINGS:
        axes.axvline(damping, linewidth=1, zorder=0, **style.DOTTED)
    overall = sum(trial.mean for trial in trials) / len(trials)
    for instance in trials[0].values:
        mean = sum(trial.values[instance] for trial in trials) / len(trials)
        for trial in trials:
            value, color = trial.values[instance] - mean + overall, styles[trial.name]["color"]
            axes.plot(trial.gradient.damping, value, ".", color=color, alpha=0.35, markersize=3.5)
    for trial in trials:
        axes.plot(trial.gradient.damping, trial.mean, markersize=5, **styles[trial.name])
    axes.plot(chosen.gradient.damping, chosen.mean, **_RING)
    axes.set(title="(a) Validation", xlabel=r"$\lambda$")
    style.bare(axes, "y")


def _test_panel(
    axes: Axes, trials: list[Trial], chosen: Trial, styles: dict[str, style.Look]
) -> None:
    """Draw the only test values of a search: of the chosen trial, and of the paper's λ."""
    papers = [t for t in trials if t.gradient.damping in PAPER_DAMPINGS and t is not chosen]
    shown = [chosen, *sorted(papers, key=lambda t: (t.gradient.damping, t.gradient.steps))]
    metric = chosen.runs.metric
    for place, trial in enumerate(shown):
        if tested := trial.runs.selected:
            value, spread = tested.mean * metric.scale, tested.std * metric.scale
            look = {**styles[trial.name], "markersize": 5, "elinewidth": 1.1, "capsize": 2.2}
            axes.errorbar(place, value, yerr=spread or None, **look)
            if trial is chosen:
                axes.plot(place, value, **_RING)
    labels = [f"$\\lambda = {t.gradient.damping:g}$\nk = {t.gradient.steps}" for t in shown]
    axes.set_xticks(range(len(shown)), labels)
    axes.margins(x=0.15)
    axes.set(title="(b) Test", ylabel=f"{metric.heading}\n{SELECTED}")
    style.bare(axes, "y")
