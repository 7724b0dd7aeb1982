"""The figures of the three theorems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from phantomgrad_suite.report.figures import style
from phantomgrad_suite.runs.records import StudyRecord

_LOWEST = 1e-6  # of the ratio in the first figure; below it the condition holds by far
_HIGHEST = 1e12  # likewise, and the ratio where the right-hand side is zero
_ROUNDING = 1e-13  # of the errors in the second figure
_LEFT = r"$\sum\eta_n\|\nabla R\|^2 \,/\, \sum\eta_n$"
_WANTED = {"weight": r"\theta = W", "input": r"\theta = u"}

Case = dict[str, Any]


def descent_figure(record: StudyRecord) -> Figure:
    """Return both sides of Theorem 1 as a ratio, by k: a row for each theta, a column an L_h."""
    cases = record.numbers["cases"]
    norms = list(dict.fromkeys(case["lipschitz"] for case in cases))
    looks = style.looks(case["damping"] for case in cases)
    left, right = (
        r"\|A(I - \partial F/\partial h) - \partial F/\partial\theta\|",
        r"\sigma_{\min}^2/\sigma_{\max}",
    )
    size = (2.35 * len(norms) + 0.7, 5.2)
    title = f"Theorem 1: ${left}$ over ${right}$"
    figure, grid = style.panels(2, len(norms), size, title, sharex=True, sharey="row")
    for axes_row, (wanted, symbol) in zip(grid, _WANTED.items(), strict=True):
        mine = [case for case in cases if case["wanted"] == wanted]
        for axes, norm in zip(axes_row, norms, strict=True):
            _ratios(axes, [case for case in mine if case["lipschitz"] == norm], looks)
            axes.set_title(rf"$L_h = {norm:g}$, ${symbol}$")
        axes_row[0].set_ylim(_LOWEST, 4 * max(map(_ratio, mine)))
        axes_row[0].set_ylabel("left side / right side")
    for axes in grid[-1]:
        axes.set_xlabel("$k$")
    crosses = {"color": style.INK, "linestyle": "none", "marker": "x"}
    handles = [_handle(rf"$\lambda = {x:g}$", look) for x, look in looks.items()]
    handles.append(_handle("some loss does not ascend in some sample", crosses))
    note = "medians over the samples; the condition holds below the line at 1"
    style.legend(figure, handles, note)
    return figure


def _ratios(axes: Axes, cases: Sequence[Case], looks: dict[float, style.Look]) -> None:
    axes.axhline(1.0, color=style.INK, linewidth=0.9)
    # A size of crosses for each λ, as lines may coincide.
    for size, (damping, look) in zip((6, 9, 12), looks.items(), strict=False):
        mine = [case for case in cases if case["damping"] == damping]
        k = [case["steps"] for case in mine]
        axes.plot(k, list(map(_ratio, mine)), markersize=3.2, linewidth=1.2, **look)
        failing = [(case["steps"], _ratio(case)) for case in mine if case["every"] < 1]
        if failing:
            crosses = {**look, "linestyle": "none", "marker": "x", "markersize": size}
            axes.plot(*zip(*failing, strict=True), markeredgewidth=1.2, **crosses)
    axes.set(xscale="log", yscale="log")
    steps = sorted({case["steps"] for case in cases})
    axes.set_xticks(steps, [f"{k:g}" for k in steps])
    axes.xaxis.set_minor_locator(NullLocator())
    style.logarithmic(axes, LogLocator(numticks=7))
    style.bare(axes, "y")


def _ratio(case: Case) -> float:
    """Return left over right side, clipped to the drawn range."""
    ratio = case["left"] / case["right"] if case["right"] > 0 else _HIGHEST
    return float(min(max(ratio, _LOWEST / 10), _HIGHEST))


def series_figure(record: StudyRecord) -> Figure:
    """Return the errors of both parts of Theorem 2 by k, a column for each L_h."""
    numbers, steps = record.numbers, record.numbers["steps"]
    norms = list(dict.fromkeys(case["lipschitz"] for case in numbers["neumann"]))
    looks = style.looks(case["damping"] for case in numbers["neumann"])
    title = r"Theorem 2: errors of the Neumann series (i) and of the unrolled Jacobian (ii)"
    size = (2.9 * len(norms) + 0.7, 5.4)
    figure, grid = style.panels(2, len(norms), size, title, sharex="col", sharey=True)
    for (upper, lower), norm in zip(grid.T, norms, strict=True):
        neumann = [case for case in numbers["neumann"] if case["lipschitz"] == norm]
        unrolled = [case for case in numbers["unrolled"] if case["lipschitz"] == norm]
        for case in neumann:
            look = looks[case["damping"]]
            bound = {"color": look["color"], "linewidth": 0.8, "alpha": 0.55}
            upper.plot(steps, [case["norm"] ** k for k in steps], linestyle="-", **bound)
            _errors(upper, steps, case, look, filled=True)
        for case in unrolled:
            _errors(lower, steps, case, looks[case["damping"]], filled=case["start"] == "zero")
        upper.set_title(rf"(i)  $L_h = {norm:g}$")
        lower.set(title=rf"(ii)  $L_h = {norm:g}$", xlabel="$k$")
        pairs = [pair for case in neumann for pair in zip(steps, case["error"], strict=True)]
        slowest = max(k for k, error in pairs if error > _ROUNDING)
        for axes in (upper, lower):
            axes.set_yscale("log")
            axes.set(ylim=(_ROUNDING, 3), xlim=(0, 1.04 * slowest))
            style.logarithmic(axes, LogLocator(numticks=7))
            style.bare(axes, "y")
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error")
    dots = {"color": style.INK, "linestyle": "none", "marker": "o"}
    handles = [_handle(rf"$\lambda = {x:g}$", look) for x, look in looks.items()]
    handles.append(style.handle(r"(i) bound, $\|B\|^k$", color=style.MUTED, linewidth=0.8))
    handles.append(_handle("(ii) from $h_0 = 0$", dots))
    handles.append(_handle("(ii) from a rough solve", dots, filled=False))
    style.legend(figure, handles, "relative to the norm of the limit", 3)
    return figure


def _errors(
    axes: Axes, steps: Sequence[int], case: Case, look: style.Look, *, filled: bool
) -> None:
    face = look["color"] if filled else "white"
    axes.plot(steps, case["error"], linewidth=1.2, markersize=3.6, markerfacecolor=face, **look)


def sgd_figure(record: StudyRecord) -> Figure:
    """Return the left side of Theorem 3 by step, and where it ends, by the error."""
    numbers, gradients = record.numbers, record.numbers["gradients"]
    looks = _gradient_looks(gradients)
    title = "Theorem 3: how near to a stationary point SGD comes with a phantom gradient"
    figure, ((curves, squares), (levels, late)) = style.panels(2, 2, (8.8, 7.4), title)
    # The exact gradient comes last, on top of those that follow it closely.
    for case, look in [*zip(gradients, looks, strict=True)][::-1]:
        for axes, name in ((curves, "curve"), (squares, "square")):
            axes.plot(numbers["steps"], case[name], linewidth=1.2, **{**look, "marker": None})
    curves.set(title="left side, by step", xlabel="$N$", ylabel=_LEFT)
    squares.set(title="squared gradient, by step", xlabel="$n$", ylabel=r"$\|\nabla R(W_n)\|^2$")
    epsilon = [fmean(case["epsilon"]["max"]) for case in gradients]
    floor, size = fmean(gradients[0]["level"]), fmean(gradients[0]["bound"])
    _points(levels, gradients, epsilon, "level", looks)
    _reference(levels, epsilon[1:], lambda x: floor + size * x, r"exact $+\; G\epsilon$")
    levels.set(title="left side after all steps", ylabel=_LEFT)
    levels.set_xlabel(r"$\epsilon = \max_n \|\hat{g}_n - g_n\|$")
    bias, lowest = [fmean(case["bias"]) for case in gradients], fmean(gradients[0]["late"])
    _points(late, gradients, bias, "late", looks)
    _reference(late, bias[1:], lambda x: lowest + x * x, r"exact $+$ bias$^2$")
    late.set_title("the same over the second half of the steps")
    late.set_xlabel(r"bias, mean of $\|\mathrm{E}\,\hat{g}_n - \nabla R\|$")
    for axes in (curves, squares, levels, late):
        axes.set_xscale("log")
        style.logarithmic(axes, LogLocator(subs=(1.0, 2.0, 5.0)), "{x:g}")
        style.bare(axes, "y")
    handles = []
    for case, look in zip(gradients, looks, strict=True):
        symbol = rf"{case['kind'].upper()} $A_{{{case['steps']},\,{case['damping']}}}$"
        label = "exact" if case["kind"] == "exact" else symbol
        handles.append(_handle(label, look, filled=case["kind"] == "npg"))
    style.legend(figure, handles, "means over the seeds", 5)
    return figure


def _gradient_looks(gradients: Sequence[Case]) -> list[style.Look]:
    """Return a look for each gradient: the same colours for NPG (solid) and UPG (dashed)."""
    dashes = {"npg": "-", "upg": (0, (5, 2))}
    of_kind = {kind: style.looks(range(len(gradients)), style.LINES[1:]) for kind in dashes}
    left = {kind: iter(looks.values()) for kind, looks in of_kind.items()}
    exact = {"color": style.INK, "linestyle": (0, (1, 1.2)), "marker": "none"}
    return [
        exact if kind == "exact" else {**next(left[kind]), "linestyle": dashes[kind]}
        for kind in (case["kind"] for case in gradients)
    ]


def _points(
    axes: Axes, cases: Sequence[Case], x: Sequence[float], name: str, looks: Sequence[style.Look]
) -> None:
    """Draw the mean of ``name`` of each gradient at its ``x``; the exact one as a line."""
    for case, here, look in zip(cases, x, looks, strict=True):
        height = fmean(case[name])
        if case["kind"] == "exact":
            axes.axhline(height, linewidth=1.2, **{**look, "marker": None})
        else:
            face = look["color"] if case["kind"] == "npg" else "white"
            marks = {"color": look["color"], "marker": look["marker"], "markersize": 6}
            axes.plot(here, height, markerfacecolor=face, **marks)


def _reference(
    axes: Axes, x: Sequence[float], height: Callable[[float], float], label: str
) -> None:
    low, high = 0.8 * min(x), 1.25 * max(x)
    places = [low * (high / low) ** (i / 80) for i in range(81)]
    line: style.Look = {"color": style.MUTED, "linewidth": 1, "linestyle": (0, (5, 3))}
    axes.plot(places, [height(p) for p in places], **line)
    text: style.Look = {
        "textcoords": "offset points",
        "ha": "right",
        "fontsize": 8,
        "color": style.MUTED,
    }
    axes.annotate(label, (places[48], height(places[48])), xytext=(-6, 5), **text)


def _handle(label: str, look: style.Look, filled: bool = True) -> Line2D:
    face = look["color"] if filled else "white"
    return style.handle(label, linewidth=1.3, markersize=5, markerfacecolor=face, **look)


FIGURES = {
    "theorem1": ("theorems/descent", descent_figure),
    "theorem2": ("theorems/series", series_figure),
    "theorem3": ("theorems/sgd", sgd_figure),
}
"""The study and the drawing of each figure."""
