"""The figures of the three theorems."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.figures import plot, style
from phantomgrad_suite.report.figures.plot import Mark, Panel, Plot, mark
from phantomgrad_suite.report.studies.parts import Numbers
from phantomgrad_suite.report.studies.theorems import first_of
from phantomgrad_suite.report.table import Table
from phantomgrad_suite.runs.records import StudyRecord

_LOWEST = 1e-6  # of the ratio in the first figure; below it the condition holds by far
_HIGHEST = 1e12  # likewise, and the ratio where the right-hand side is zero
_ROUNDING = 1e-13  # of the errors in the second figure
_LEFT = r"$\sum\eta_n\|\nabla R\|^2 \,/\, \sum\eta_n$"
_RATIO = (
    r"$\|A(I - \partial F/\partial h) - \partial F/\partial\theta\|$ over "
    r"$\sigma_{\min}^2/\sigma_{\max}$"
)
_WANTED = {"weight": r"\theta = W", "input": r"\theta = u"}


def theorems(table: Table) -> Iterator[Plot]:
    """Yield a figure for each theorem that has a record."""
    plots = {"descent": _descent_plot, "series": _series_plot, "sgd": _sgd_plot}
    for name, plot_of in plots.items():
        if record := first_of(table.studies, f"theorems/{name}"):
            yield plot_of(record)


def _descent_plot(record: StudyRecord) -> Plot:
    """Return both sides of Theorem 1 as a ratio, by k: a row for each theta, a column an L_h."""
    cases = record.numbers["cases"]
    norms = list(dict.fromkeys(case["lipschitz"] for case in cases))
    looks = style.looks((case["damping"] for case in cases), markersize=3.2)
    panels = []
    for wanted, symbol in _WANTED.items():
        mine = [case for case in cases if case["wanted"] == wanted]
        steps = sorted({case["steps"] for case in mine})
        axes = {
            "xscale": "log",
            "yscale": "log",
            "ylim": (_LOWEST, 4 * max(map(_ratio, mine))),
            "xticks": steps,
            "xticklabels": [f"{k:g}" for k in steps],
        }
        locators = {"x": FixedLocator(steps), "y": LogLocator(numticks=7)}
        row = []
        for norm in norms:
            marks = _ratios([case for case in mine if case["lipschitz"] == norm], looks)
            title = rf"$L_h = {norm:g}$, ${symbol}$"
            row.append(Panel(marks, axes | {"title": title}, locators=locators))
        row[0].axes["ylabel"] = "left side / right side"
        panels.append(row)
    for panel in panels[-1]:
        panel.axes["xlabel"] = "$k$"
    crosses = {"color": style.INK, "linestyle": "none", "marker": "x"}
    legend = [(rf"$\lambda = {x:g}$", look) for x, look in looks.items()]
    legend.append(("some loss does not ascend in some sample", crosses))
    note = "medians over the samples; the condition holds below the line at 1"
    size, shared = (2.35 * len(norms) + 0.7, 5.2), {"sharex": True, "sharey": "row"}
    title = f"Theorem 1: {_RATIO}"
    return Plot("theorem1", FIGURES["theorem1"], title, size, panels, legend, note, shared)


def _ratios(cases: Sequence[Numbers], looks: dict[float, style.Look]) -> list[Mark]:
    marks: list[Mark] = [mark(Axes.axhline, 1.0, color=style.INK, linewidth=0.9)]
    # A size of crosses for each λ, as lines may coincide.
    for size, (damping, look) in zip((6, 9, 12), looks.items(), strict=False):
        mine = [case for case in cases if case["damping"] == damping]
        marks.append(plot.Line([case["steps"] for case in mine], list(map(_ratio, mine)), look))
        failing = [case for case in mine if case["every"] < 1]
        cross = {"linestyle": "none", "marker": "x", "markersize": size, "markeredgewidth": 1.2}
        k, ratios = [case["steps"] for case in failing], list(map(_ratio, failing))
        marks += [plot.Line(k, ratios, look | cross)] if failing else []
    return marks


def _ratio(case: Numbers) -> float:
    """Return left over right side, clipped to the drawn range."""
    ratio = case["left"] / case["right"] if case["right"] > 0 else _HIGHEST
    return float(min(max(ratio, _LOWEST / 10), _HIGHEST))


def _series_plot(record: StudyRecord) -> Plot:
    """Return the errors of both parts of Theorem 2 by k, a column for each L_h."""
    numbers, steps = record.numbers, record.numbers["steps"]
    norms = list(dict.fromkeys(case["lipschitz"] for case in numbers["neumann"]))
    looks = style.looks((case["damping"] for case in numbers["neumann"]), markersize=3.6)
    columns = []
    for norm in norms:
        neumann = [case for case in numbers["neumann"] if case["lipschitz"] == norm]
        unrolled = [case for case in numbers["unrolled"] if case["lipschitz"] == norm]
        upper = []
        for case in neumann:
            look = looks[case["damping"]]
            bound = {"color": look["color"], "linewidth": 0.8, "alpha": 0.55}
            upper.append(plot.Line(steps, [case["norm"] ** k for k in steps], bound))
            upper.append(plot.Line(steps, case["error"], look))
        lower = [
            plot.Line(
                steps, case["error"], _filled(looks[case["damping"]], case["start"] == "zero")
            )
            for case in unrolled
        ]
        pairs = [pair for case in neumann for pair in zip(steps, case["error"], strict=True)]
        slowest = max(k for k, error in pairs if error > _ROUNDING)
        axes = {"yscale": "log", "ylim": (_ROUNDING, 3), "xlim": (0, 1.04 * slowest)}
        locators = {"y": LogLocator(numticks=7)}
        first = Panel(upper, {"title": rf"(i)  $L_h = {norm:g}$", **axes}, locators=locators)
        titles = {"title": rf"(ii)  $L_h = {norm:g}$", "xlabel": "$k$"}
        columns.append((first, Panel(lower, titles | axes, locators=locators)))
    for panel in columns[0]:
        panel.axes["ylabel"] = "relative error"
    dots = {"color": style.INK, "linestyle": "none", "marker": "o"}
    legend: list[tuple[str, style.Look]] = [
        *((rf"$\lambda = {x:g}$", look) for x, look in looks.items()),
        (r"(i) bound, $\|B\|^k$", {"color": style.MUTED, "linewidth": 0.8}),
        ("(ii) from $h_0 = 0$", dots),
        ("(ii) from a rough solve", _filled(dots, False)),
    ]
    title = r"Theorem 2: errors of the Neumann series (i) and of the unrolled Jacobian (ii)"
    panels, size = list(zip(*columns, strict=True)), (2.9 * len(norms) + 0.7, 5.4)
    shared = {"sharex": "col", "sharey": True}
    names, note = ("theorem2", FIGURES["theorem2"], title), "relative to the norm of the limit"
    return Plot(*names, size, panels, legend, note, shared, 3)


def _filled(look: style.Look, filled: bool) -> style.Look:
    return look if filled else {**look, "markerfacecolor": "white"}


def _sgd_plot(record: StudyRecord) -> Plot:
    """Return the left side of Theorem 3 by step, and where it ends, by the error."""
    numbers, gradients = record.numbers, record.numbers["gradients"]
    looks = _gradient_looks(gradients)
    # The exact gradient comes last, on top of those that follow it closely.
    drawn = [*zip(gradients, looks, strict=True)][::-1]
    curves, squares = (
        [plot.Line(numbers["steps"], case[name], {**look, "marker": None}) for case, look in drawn]
        for name in ("curve", "square")
    )
    epsilon = [fmean(case["epsilon"]["max"]) for case in gradients]
    bias = [fmean(case["bias"]) for case in gradients]
    floor, size = fmean(gradients[0]["level"]), fmean(gradients[0]["bound"])
    lowest = fmean(gradients[0]["late"])
    levels = _points(gradients, epsilon, "level", looks)
    levels += _reference(epsilon[1:], lambda x: floor + size * x, r"exact $+\; G\epsilon$")
    late = _points(gradients, bias, "late", looks)
    late += _reference(bias[1:], lambda x: lowest + x * x, r"exact $+$ bias$^2$")
    half = "the same over the second half of the steps"
    error = r"$\epsilon = \max_n \|\hat{g}_n - g_n\|$"
    shift = r"bias, mean of $\|\mathrm{E}\,\hat{g}_n - \nabla R\|$"
    panels = [
        [
            _logarithmic(curves, "left side, by step", "$N$", _LEFT),
            _logarithmic(squares, "squared gradient, by step", "$n$", r"$\|\nabla R(W_n)\|^2$"),
        ],
        [
            _logarithmic(levels, "left side after all steps", error, _LEFT),
            _logarithmic(late, half, shift, ""),
        ],
    ]
    legend = []
    for case, look in zip(gradients, looks, strict=True):
        symbol = rf"{case['kind'].upper()} $A_{{{case['steps']},\,{case['damping']}}}$"
        legend.append(("exact" if case["kind"] == "exact" else symbol, look))
    title = "Theorem 3: how near to a stationary point SGD comes with a phantom gradient"
    names = ("theorem3", FIGURES["theorem3"], title)
    return Plot(*names, (8.8, 7.4), panels, legend, "means over the seeds", columns=5)


def _logarithmic(marks: Sequence[Mark], title: str, x: str, y: str) -> Panel:
    axes = {"title": title, "xlabel": x, "ylabel": y, "xscale": "log", "yscale": "log"}
    return Panel(marks, axes, locators={"y": LogLocator(subs=(1.0, 2.0, 5.0))}, plain=True)


def _gradient_looks(gradients: Sequence[Numbers]) -> list[style.Look]:
    """Return a look for each gradient: the same colours for NPG (solid) and UPG (dashed)."""
    dashes = {"npg": "-", "upg": (0, (5, 2))}
    of_kind = {kind: style.looks(range(len(gradients)), style.LINES[1:]) for kind in dashes}
    left = {kind: iter(looks.values()) for kind, looks in of_kind.items()}
    exact = {"color": style.INK, "linestyle": (0, (1, 1.2)), "marker": "none"}
    return [
        exact
        if kind == "exact"
        else _filled({**next(left[kind]), "linestyle": dashes[kind]}, kind == "npg")
        for kind in (case["kind"] for case in gradients)
    ]


def _points(
    cases: Sequence[Numbers], x: Sequence[float], name: str, looks: Sequence[style.Look]
) -> list[Mark]:
    """Return the mean of ``name`` of each gradient at its ``x``; the exact one as a line."""
    marks: list[Mark] = []
    for case, here, look in zip(cases, x, looks, strict=True):
        if case["kind"] == "exact":
            marks.append(mark(Axes.axhline, fmean(case[name]), **look))
        else:
            marks.append(plot.Line(here, fmean(case[name]), {**look, "linestyle": "none"}))
    return marks


def _reference(x: Sequence[float], height: Callable[[float], float], label: str) -> list[Mark]:
    low, high = 0.8 * min(x), 1.25 * max(x)
    places = [low * (high / low) ** (i / 80) for i in range(81)]
    line = {"color": style.MUTED, "linestyle": (0, (5, 3))}
    text = {"xytext": (-6, 5), "textcoords": "offset points", "ha": "right", "color": style.MUTED}
    note = mark(Axes.annotate, label, (places[48], height(places[48])), **text)
    return [plot.Line(places, [height(p) for p in places], line), note]
