"""Figure 3 and the searches: the influence of λ, k and the form of the phantom gradient."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.experiments.lines import Gradient, Line
from phantomgrad_suite.report.experiments.runs import Runs, objective_of
from phantomgrad_suite.report.figures import plot, style
from phantomgrad_suite.report.figures.plot import Mark, Panel, Plot, file_name, mark
from phantomgrad_suite.report.figures.run_figures import SELECTED
from phantomgrad_suite.report.table import Block, Cell, Row, Table

PAPER_DAMPINGS = (0.5, 0.8, 1.0)
_EPOCHS = {"Best": "best epoch", "Selected": "epoch selected", "Last": "last epoch"}
_DODGE = 1.05  # factor between neighbours on the axis of k
_WIDTHS = {"width_ratios": [1.9, 1]}
_RING: style.Look = {
    "color": style.INK,
    "marker": "o",
    "linestyle": "none",
    "markersize": 11,
    "markerfacecolor": "none",
    "markeredgewidth": 1.2,
}


def sweeps(table: Table) -> Iterator[Plot]:
    """Yield a figure for each block with runs of phantom gradients."""
    for block in table.blocks:
        lines = [(row, row.line) for row in block.rows if row.line and row.line.runs]
        rows = {line.gradient: row for row, line in lines if line.gradient}
        if rows:
            yield _sweep_plot(table, block, rows)


def _sweep_plot(table: Table, block: Block, rows: dict[Gradient, Row]) -> Plot:
    """Return (a) λ and k of UPG and (b) NPG and UPG at the largest λ, a row for each epoch."""
    lines = [row.line for row in rows.values() if row.line]
    dampings, steps = sorted({g.damping for g in rows}), sorted({g.steps for g in rows})
    names = [("UPG", damping) for damping in dampings] + [("NPG", dampings[-1])]
    looks = style.looks(names, marker="o", markersize=4.5)
    looks[names[-1]]["marker"] = "s"
    titles = (
        r"(a) Impact of $\lambda$ and $k$ (UPG)",
        rf"(b) NPG vs. UPG ($\lambda = {dampings[-1]}$)",
    )
    panels: list[list[Panel]] = []
    for epoch, label in _EPOCHS.items():
        cells = {g: r.cells[epoch] for g, r in rows.items() if r.cells[epoch].value is not None}
        if not cells:
            continue
        shown = (
            {g: cell for g, cell in cells.items() if g.form == "UPG"},
            {g: cell for g, cell in cells.items() if g.damping == dampings[-1]},
        )
        panels.append([])
        for points, title in zip(shown, titles, strict=True):
            axes: style.Look = {"xscale": "log", "xticks": steps, "xticklabels": steps}
            axes |= {"title": "" if panels[:-1] else title}
            marks = _by_steps(points, looks)
            panels[-1].append(Panel(marks, axes, locators={"x": FixedLocator(steps)}))
        panels[-1][0].axes["ylabel"] = f"{lines[0].metric.heading}\n{label}"
    for panel in panels[-1]:
        panel.axes["xlabel"] = "k"
    forms = {gradient.form for gradient in rows}
    legend = [
        (rf"{form}, $\lambda = {damping}$", look)
        for (form, damping), look in looks.items()
        if form == "UPG" or form in forms
    ]
    counts = sorted({line.runs.n for line in lines if line.runs})
    runs = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    reduced = "; ".join(dict.fromkeys(line.variant for line in lines if line.variant))
    note = f"mean ± one standard deviation over {runs} runs. {reduced}".strip()
    size, shared = (8.2, 1.2 + 2.1 * len(panels)), {"sharex": True, "sharey": "row"}
    title = f"{table.title}, {lines[0].dataset}"
    named = (file_name(table.key, block.key), FIGURES["sweep"].format(line=lines[0]), title)
    return Plot(*named, size, panels, legend, note, shared)


def _by_steps(
    cells: dict[Gradient, Cell], looks: dict[tuple[str, float], style.Look]
) -> list[Mark]:
    """Return a line by k for each form and λ, with a small shift against its neighbours."""
    lines = sorted({(gradient.form, gradient.damping) for gradient in cells})
    marks = list[Mark]()
    for place, line in enumerate(lines):
        mine = sorted((g.steps, c) for g, c in cells.items() if (g.form, g.damping) == line)
        shift = _DODGE ** (place - (len(lines) - 1) / 2)
        x, found = [k * shift for k, _ in mine], [cell for _, cell in mine]
        spreads = [cell.spread for cell in found]
        values = [cell.value for cell in found]
        marks.append(mark(Axes.errorbar, x, values, yerr=spreads, **looks[line]))
    return marks


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


def _trials_of(block: Block) -> list[Trial]:
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


def searches(table: Table) -> Iterator[Plot]:
    """Yield a figure for each block with trials of a search."""
    for block in table.blocks:
        if trials := _trials_of(block):
            yield _search_plot(table, block, trials)


def _search_plot(table: Table, block: Block, trials: list[Trial]) -> Plot:
    """Return the objective by λ, and the test values of the chosen trial and of the paper's λ."""
    objective = objective_of(trials[0].runs.first)
    assert objective is not None
    chosen = min(trials, key=lambda t: (objective.sign * t.mean, t.gradient.damping))
    line, n = chosen.line, len(chosen.values)
    names = sorted({trial.name for trial in trials})
    looks = style.looks(names, style.LINES[1:], linestyle="none", markersize=5)
    better = "↓" if objective.sign > 0 else "↑"
    single = {**looks[names[0]], "marker": ".", "alpha": 0.5}
    validation = {
        "title": "(a) Validation",
        "xlabel": r"$\lambda$",
        "ylabel": f"{objective.curve.replace('/', ' ')}, best epoch {better}",
    }
    panels = [Panel(_objectives(trials, chosen, looks), validation), _tests(trials, chosen, looks)]
    legend = [
        *looks.items(),
        ("single runs, without what folds differ by", single),
        ("chosen on validation data", _RING),
        ("λ of the paper", style.DOTTED),
    ]
    reduced = f" {line.variant[0].upper()}{line.variant[1:]}." if line.variant else ""
    runs = f"{len(trials)} trials of {n} run{'s' * (n > 1)} each"
    note, options = (
        f"{runs}; whiskers: ± one standard deviation.{reduced}",
        {"width_ratios": [1.9, 1]},
    )
    caption, title = FIGURES["search"].format(line=line), f"{table.title}, {line.dataset}"
    named = (file_name(table.key, block.key), caption, title)
    return Plot(*named, (8.4, 3.9), [panels], legend, note, options)


def _objectives(trials: list[Trial], chosen: Trial, looks: dict[str, style.Look]) -> list[Mark]:
    """Return means, and single runs shifted so that each instance has the same mean."""
    marks: list[Mark] = [mark(Axes.axvline, d, **style.DOTTED) for d in PAPER_DAMPINGS]
    overall = sum(trial.mean for trial in trials) / len(trials)
    dot: style.Look = {"marker": ".", "alpha": 0.35, "markersize": 3.5}
    for instance in trials[0].values:
        mean = sum(trial.values[instance] for trial in trials) / len(trials)
        for trial in trials:
            value, look = trial.values[instance] - mean + overall, looks[trial.name]
            marks.append(plot.Line(trial.gradient.damping, value, look | dot))
    marks += [plot.Line(t.gradient.damping, t.mean, looks[t.name]) for t in trials]
    return [*marks, plot.Line(chosen.gradient.damping, chosen.mean, _RING)]


def _tests(trials: list[Trial], chosen: Trial, looks: dict[str, style.Look]) -> Panel:
    """Return the only test values of a search: of the chosen trial, and of the paper's λ."""
    papers = [t for t in trials if t.gradient.damping in PAPER_DAMPINGS and t is not chosen]
    shown = [chosen, *sorted(papers, key=lambda t: (t.gradient.damping, t.gradient.steps))]
    metric, marks = chosen.runs.metric, list[Mark]()
    for place, trial in enumerate(shown):
        if tested := trial.runs.selected:
            value, spread = tested.mean * metric.scale, tested.std * metric.scale
            marks.append(
                mark(Axes.errorbar, place, value, yerr=spread or None, **looks[trial.name])
            )
            if trial is chosen:
                marks.append(plot.Line(place, value, _RING))
    axes = {
        "title": "(b) Test",
        "ylabel": f"{metric.heading}\n{SELECTED}",
        "xmargin": 0.15,
        "xticks": range(len(shown)),
        "xticklabels": [
            f"$\\lambda = {t.gradient.damping:g}$\nk = {t.gradient.steps}" for t in shown
        ],
    }
    return Panel(marks, axes)
