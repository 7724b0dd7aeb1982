"""The figures of the three theorems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from phantomgrad_suite.report.figures.style import (
    INK,
    LINES,
    MARKERS,
    MUTED,
    Look,
    bare,
    handle,
    legend,
    logarithmic,
    looks,
    panels,
)
from phantomgrad_suite.report.studies.theorems import Case
from phantomgrad_suite.runs.records import StudyRecord

_LOWEST = 1e-6  # of the ratio in the first figure; below it the condition holds by far
_HIGHEST = 1e12  # likewise, and the ratio where the right-hand side is zero
_ROUNDING = 1e-13  # of the errors in the second figure
_LEFT = r"$\sum\eta_n\|\nabla R\|^2 \,/\, \sum\eta_n$"
_WANTED = {"weight": r"\theta = W", "input": r"\theta = u"}


def descent_figure(record: StudyRecord) -> Figure:
    """Return both sides of Theorem 1 as a ratio, by k: a row for each theta, a column an L_h."""
    cases = record.numbers["cases"]
    norms = list(dict.fromkeys(case["lipschitz"] for case in cases))
    styles = looks(case["damping"] for case in cases)
    title = (
        r"Theorem 1: $\|A(I - \partial F/\partial h) - \partial F/\partial\theta\|$ "
        r"over $\sigma_{\min}^2/\sigma_{\max}$"
    )
    size = (2.35 * len(norms) + 0.7, 5.2)
    figure, grid = panels(2, len(norms), size, title, sharex=True, sharey="row")
    for axes_row, (wanted, symbol) in zip(grid, _WANTED.items(), strict=True):
        mine = [case for case in cases if case["wanted"] == wanted]
        for axes, norm in zip(axes_row, norms, strict=True):
            _ratio_panel(axes, [case for case in mine if case["lipschitz"] == norm], styles)
            axes.set_title(rf"$L_h = {norm:g}$, ${symbol}$")
        axes_row[0].set_ylim(_LOWEST, 4 * max(map(_ratio, mine)))
        axes_row[0].set_ylabel("left side / right side")
    for axes in grid[-1]:
        axes.set_xlabel("$k$")
    handles = [_handle(rf"$\lambda = {x:g}$", look) for x, look in styles.items()]
    crosses = {"color": INK, "linestyle": "none", "marker": "x"}
    handles.append(_handle("some loss does not ascend in some sample", crosses))
    note = "medians over the samples; the condition holds below the line at 1"
    legend(figure, handles, len(handles), note)
    return figure


def _ratio_panel(axes: Axes, cases: Sequence[Case], styles: dict[float, Look]) -> None:
    axes.axhline(1.0, color=INK, linewidth=0.9)
    # A size of crosses for each λ, as lines may coincide.
    for size, (damping, look) in zip((6, 9, 12), styles.items(), strict=False):
        points = [
            (case["steps"], _ratio(case), case) for case in cases if case["damping"] == damping
        ]
        k, ratio, _ = zip(*points, strict=True)
        axes.plot(k, ratio, markersize=3.2, linewidth=1.2, **look)
        failing = [(x, y) for x, y, case in points if case["every"] < 1]
        if failing:
            crosses = {**look, "linestyle": "none", "marker": "x", "markersize": size}
            axes.plot(*zip(*failing, strict=True), markeredgewidth=1.2, **crosses)
    axes.set(xscale="log", yscale="log")
    steps = sorted({case["steps"] for case in cases})
    axes.set_xticks(steps, [f"{k:g}" for k in steps])
    axes.xaxis.set_minor_locator(NullLocator())
    logarithmic(axes, LogLocator(numticks=7))
    bare(axes, "y")


def _ratio(case: Case) -> float:
    """Return left over right side, clipped to the drawn range."""
    ratio = case["left"] / case["right"] if case["right"] > 0 else _HIGHEST
    return float(min(max(ratio, _LOWEST / 10), _HIGHEST))


def series_figure(record: StudyRecord) -> Figure:
    """Return the errors of both parts of Theorem 2 by k, a column for each L_h."""
    numbers, steps = record.numbers, record.numbers["steps"]
    norms = list(dict.fromkeys(case["lipschitz"] for case in numbers["neumann"]))
    styles = looks(case["damping"] for case in numbers["neumann"])
    title = r"Theorem 2: errors of the Neumann series (i) and of the unrolled Jacobian (ii)"
    size = (2.9 * len(norms) + 0.7, 5.4)
    figure, grid = panels(2, len(norms), size, title, sharex="col", sharey=True)
    for (upper, lower), norm in zip(grid.T, norms, strict=True):
        neumann, unrolled = (
            [case for case in numbers[name] if case["lipschitz"] == norm]
            for name in ("neumann", "unrolled")
        )
        for case in neumann:
            look = styles[case["damping"]]
            bound = [case["norm"] ** k for k in steps]
            upper.plot(steps, bound, color=look["color"], linestyle="-", linewidth=0.8, alpha=0.55)
            _errors(upper, steps, case, look)
        for case in unrolled:
            _errors(lower, steps, case, styles[case["damping"]], case["start"] == "zero")
        upper.set_title(rf"(i)  $L_h = {norm:g}$")
        lower.set_title(rf"(ii)  $L_h = {norm:g}$")
        lower.set_xlabel("$k$")
        pairs = [pair for case in neumann for pair in zip(steps, case["error"], strict=True)]
        slowest = max(k for k, error in pairs if error > _ROUNDING)
        for axes in (upper, lower):
            axes.set_yscale("log")
            axes.set_ylim(_ROUNDING, 3)
            axes.set_xlim(0, 1.04 * slowest)
            logarithmic(axes, LogLocator(numticks=7))
            bare(axes, "y")
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error")
    dots = {"color": INK, "linestyle": "none", "marker": "o"}
    handles = [
        *(_handle(rf"$\lambda = {x:g}$", look) for x, look in styles.items()),
        handle(r"(i) bound, $\|B\|^k$", color=MUTED, linewidth=0.8),
        _handle("(ii) from $h_0 = 0$", dots),
        _handle("(ii) from a rough solve", dots, filled=False),
    ]
    legend(figure, handles, 3, "relative to the norm of the limit")
    return figure


def _errors(axes: Axes, steps: Sequence[int], case: Case, look: Look, filled: bool = True) -> None:
    face = look["color"] if filled else "white"
    axes.plot(steps, case["error"], linewidth=1.2, markersize=3.6, markerfacecolor=face, **look)


def sgd_figure(record: StudyRecord) -> Figure:
    """Return the left side of Theorem 3 by step, and where it ends, by the error."""
    numbers, gradients = record.numbers, record.numbers["gradients"]
    styles = _gradient_styles(gradients)
    title = "Theorem 3: how near to a stationary point SGD comes with a phantom gradient"
    figure, ((curves, squares), (levels, late)) = panels(2, 2, (8.8, 7.4), title)
    # The exact gradient comes last, on top of those that follow it closely.
    for case, look in [*zip(gradients, styles, strict=True)][::-1]:
        for axes, name in ((curves, "curve"), (squares, "square")):
            axes.plot(numbers["steps"], case[name], linewidth=1.2, **{**look, "marker": None})
    epsilon = [fmean(case["epsilon"]["max"]) for case in gradients]
    floor, size = fmean(gradients[0]["level"]), fmean(gradients[0]["bound"])
    _points(levels, gradients, epsilon, "level", styles)
    _reference(levels, epsilon[1:], lambda x: floor + size * x, r"exact $+\; G\epsilon$")
    bias, lowest = [fmean(case["bias"]) for case in gradients], fmean(gradients[0]["late"])
    _points(late, gradients, bias, "late", styles)
    _reference(late, bias[1:], lambda x: lowest + x * x, r"exact $+$ bias$^2$")
    curves.set(xlabel="$N$", ylabel=_LEFT)
    squares.set(xlabel="$n$", ylabel=r"$\|\nabla R(W_n)\|^2$")
    levels.set(xlabel=r"$\epsilon = \max_n \|\hat{g}_n - g_n\|$", ylabel=_LEFT)
    late.set(xlabel=r"bias, mean of $\|\mathrm{E}\,\hat{g}_n - \nabla R\|$")
    titles = {
        curves: "left side, by step",
        squares: "squared gradient, by step",
        levels: "left side after all steps",
        late: "the same over the second half of the steps",
    }
    for axes, heading in titles.items():
        axes.set_title(heading)
        axes.set(xscale="log")
        logarithmic(axes, LogLocator(subs=(1.0, 2.0, 5.0)), numbers=True)
        bare(axes, "y")
    handles = [
        _handle(_symbol(case), look, filled=case["kind"] == "npg")
        for case, look in zip(gradients, styles, strict=True)
    ]
    legend(figure, handles, 5, "means over the seeds")
    return figure


def _gradient_styles(gradients: Sequence[Case]) -> list[Look]:
    """Return a look for each gradient: the same colours for NPG (solid) and UPG (dashed)."""
    dashes = {"exact": (0, (1, 1.2)), "npg": "-", "upg": (0, (5, 2))}
    found: list[Look] = []
    for case in gradients:
        kind = case["kind"]
        place = sum(other["kind"] == kind for other in gradients[: len(found)])
        color = INK if kind == "exact" else LINES[1:][place % (len(LINES) - 1)][0]
        marker = "none" if kind == "exact" else MARKERS[place % len(MARKERS)]
        found.append({"color": color, "linestyle": dashes[kind], "marker": marker})
    return found


def _points(
    axes: Axes, cases: Sequence[Case], x: Sequence[float], name: str, styles: Sequence[Look]
) -> None:
    """Draw the mean of ``name`` of each gradient at its ``x``; the exact one as a line."""
    for case, here, look in zip(cases, x, styles, strict=True):
        height = fmean(case[name])
        if case["kind"] == "exact":
            axes.axhline(height, color=INK, linewidth=1.2, linestyle=look["linestyle"])
            continue
        face = look["color"] if case["kind"] == "npg" else "white"
        marks = {"color": look["color"], "marker": look["marker"], "markerfacecolor": face}
        axes.plot(here, height, markersize=6, **marks)


def _reference(
    axes: Axes, x: Sequence[float], height: Callable[[float], float], label: str
) -> None:
    low, high = 0.8 * min(x), 1.25 * max(x)
    places = [low * (high / low) ** (i / 80) for i in range(81)]
    axes.plot(places, [height(p) for p in places], color=MUTED, linewidth=1, linestyle=(0, (5, 3)))
    text: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": 8}
    axes.annotate(label, (places[48], height(places[48])), xytext=(-6, 5), color=MUTED, **text)


def _symbol(case: Case) -> str:
    if case["kind"] == "exact":
        return "exact"
    return rf"{case['kind'].upper()} $A_{{{case['steps']},\,{case['damping']}}}$"


def _handle(label: str, look: Look, filled: bool = True) -> Any:
    face = look["color"] if filled else "white"
    return handle(label, linewidth=1.3, markersize=5, markerfacecolor=face, **look)
