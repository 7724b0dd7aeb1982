"""The figures of the three theorems."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from phantomgrad_suite.report.style import INK, LINES, MUTED, bare, legend, titled
from phantomgrad_suite.runs.records import StudyRecord

_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<")
_LOWEST = 1e-6  # of the ratio in the first figure; what is below holds amply
_HIGHEST = 1e12  # likewise; a right side of zero stands there
_ROUNDING = 1e-13  # of the errors in the second
_LEFT = r"$\sum\eta_n\|\nabla R\|^2 \,/\, \sum\eta_n$"
_WANTED = (("weight", r"\theta = W"), ("input", r"\theta = u"))

Case = dict[str, Any]
Styles = dict[Any, tuple[str, Any, str]]


def descent_figure(record: StudyRecord) -> Figure:
    """Return both sides of Theorem 1 as a ratio, by k: a row for each theta, a column an L_h."""
    cases = record.numbers["cases"]
    norms = list(dict.fromkeys(case["lipschitz"] for case in cases))
    styles = _styles(dict.fromkeys(case["damping"] for case in cases))
    figure = Figure(figsize=(2.35 * len(norms) + 0.7, 5.2), layout="constrained")
    grid = figure.subplots(2, len(norms), sharex=True, sharey="row", squeeze=False)
    for panels, (wanted, symbol) in zip(grid, _WANTED, strict=True):
        for axes, norm in zip(panels, norms, strict=True):
            chosen = [c for c in cases if c["lipschitz"] == norm and c["wanted"] == wanted]
            _ratio_panel(axes, chosen, styles)
            axes.set_title(rf"$L_h = {norm:g}$, ${symbol}$")
        highest = max(_ratio(c) for c in cases if c["wanted"] == wanted)
        panels[0].set_ylim(_LOWEST, 4 * highest)
        panels[0].set_ylabel("left side / right side")
    for axes in grid[-1]:
        axes.set_xlabel("$k$")
    titled(
        figure,
        r"Theorem 1: $\|A(I - \partial F/\partial h) - \partial F/\partial\theta\|$ "
        r"over $\sigma_{\min}^2/\sigma_{\max}$",
    )
    handles = [_handle(rf"$\lambda = {x:g}$", *style) for x, style in styles.items()]
    handles.append(_handle("some loss does not ascend in some sample", INK, "none", "x"))
    words = "medians over the samples; the condition holds below the line at 1"
    legend(figure, handles, len(handles), words)
    return figure


def _ratio_panel(axes: Axes, cases: Sequence[Case], styles: Styles) -> None:
    axes.axhline(1.0, color=INK, linewidth=0.9)
    for size, (damping, (color, dashes, marker)) in zip((6, 9, 12), styles.items(), strict=False):
        chosen = [c for c in cases if c["damping"] == damping]
        k, ratio = [c["steps"] for c in chosen], [_ratio(c) for c in chosen]
        axes.plot(
            k, ratio, color=color, linestyle=dashes, marker=marker, markersize=3.2, linewidth=1.2
        )
        failing = [(x, y) for x, y, c in zip(k, ratio, chosen, strict=True) if c["every"] < 1]
        if failing:
            axes.plot(
                *zip(*failing, strict=True),
                color=color,  # and one size for each, as the lines may lie on each other
                linestyle="none",
                marker="x",
                markersize=size,
                markeredgewidth=1.2,
            )
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(steps := sorted({c["steps"] for c in cases}), [f"{k:g}" for k in steps])
    axes.xaxis.set_minor_locator(NullLocator())
    _whole_decades(axes)
    bare(axes, "y")


def _ratio(case: Case) -> float:
    """Return left over right side, within what can be drawn."""
    ratio = case["left"] / case["right"] if case["right"] > 0 else _HIGHEST
    return float(min(max(ratio, _LOWEST / 10), _HIGHEST))


def series_figure(record: StudyRecord) -> Figure:
    """Return the errors of both parts of Theorem 2 by k, a column for each L_h."""
    numbers = record.numbers
    norms = list(dict.fromkeys(case["lipschitz"] for case in numbers["neumann"]))
    styles = _styles(dict.fromkeys(case["damping"] for case in numbers["neumann"]))
    figure = Figure(figsize=(2.9 * len(norms) + 0.7, 5.4), layout="constrained")
    grid = figure.subplots(2, len(norms), sharex="col", sharey=True, squeeze=False)
    for (upper, lower), norm in zip(grid.T, norms, strict=True):
        for case in (c for c in numbers["neumann"] if c["lipschitz"] == norm):
            color, dashes, marker = styles[case["damping"]]
            bound = [case["norm"] ** k for k in numbers["steps"]]
            upper.plot(
                numbers["steps"], bound, color=color, linestyle="-", linewidth=0.8, alpha=0.55
            )
            _errors(upper, numbers["steps"], case, color, dashes, marker, True)
        for case in (c for c in numbers["unrolled"] if c["lipschitz"] == norm):
            _errors(
                lower, numbers["steps"], case, *styles[case["damping"]], case["start"] == "zero"
            )
        upper.set_title(rf"(i)  $L_h = {norm:g}$")
        lower.set_title(rf"(ii)  $L_h = {norm:g}$")
        lower.set_xlabel("$k$")
        for axes in (upper, lower):
            _error_axes(axes, numbers, norm)
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error")
    titled(figure, r"Theorem 2: errors of the Neumann series (i) and of the unrolled Jacobian (ii)")
    handles = [_handle(rf"$\lambda = {x:g}$", *style) for x, style in styles.items()]
    handles.append(Line2D([], [], color=MUTED, linewidth=0.8, label=r"(i) bound, $\|B\|^k$"))
    handles.append(_handle("(ii) from $h_0 = 0$", INK, "none", "o"))
    handles.append(_handle("(ii) from a rough solve", INK, "none", "o", filled=False))
    legend(figure, handles, 3, "relative to the norm of the limit")
    return figure


def _errors(
    axes: Axes, steps: Sequence[int], case: Case, color: str, dashes: Any, marker: str, filled: bool
) -> None:
    axes.plot(
        steps,
        case["error"],
        color=color,
        linestyle=dashes,
        linewidth=1.2,
        marker=marker,
        markersize=3.6,
        markerfacecolor=color if filled else "white",
    )


def _error_axes(axes: Axes, numbers: dict[str, Any], norm: float) -> None:
    """End the axis where the slowest error has reached rounding."""
    errors = [c["error"] for c in numbers["neumann"] if c["lipschitz"] == norm]
    seen = [k for e in errors for k, x in zip(numbers["steps"], e, strict=True) if x > _ROUNDING]
    axes.set_yscale("log")
    axes.set_ylim(_ROUNDING, 3)
    axes.set_xlim(0, 1.04 * max(seen))
    _whole_decades(axes)
    bare(axes, "y")


def sgd_figure(record: StudyRecord) -> Figure:
    """Return the left side of Theorem 3 by step, and where it ends, by the error."""
    numbers = record.numbers
    exact = numbers["gradients"][0]
    styles = _gradient_styles(numbers["gradients"])
    figure = Figure(figsize=(8.8, 7.4), layout="constrained")
    (curves, squares), (levels, late) = figure.subplots(2, 2)
    # The exact gradient comes last, on top of those that follow it closely.
    for entry, (color, dashes, _) in [*zip(numbers["gradients"], styles, strict=True)][::-1]:
        for axes, name in ((curves, "curve"), (squares, "square")):
            axes.plot(numbers["steps"], entry[name], color=color, linestyle=dashes, linewidth=1.2)
    curves.set_title("left side, by step")
    curves.set(xlabel="$N$", ylabel=_LEFT)
    squares.set_title("squared gradient, by step")
    squares.set(xlabel="$n$", ylabel=r"$\|\nabla R(W_n)\|^2$")
    floor, size = fmean(exact["level"]), fmean(exact["bound"])
    epsilon = [fmean(entry["epsilon"]["max"]) for entry in numbers["gradients"]]
    _points(levels, numbers["gradients"], epsilon, "level")
    _reference(levels, epsilon[1:], lambda x: floor + size * x, r"exact $+\; G\epsilon$")
    levels.set_title("left side after all steps")
    levels.set_ylabel(_LEFT)
    levels.set_xlabel(r"$\epsilon = \max_n \|\hat{g}_n - g_n\|$")
    bias = [fmean(entry["bias"]) for entry in numbers["gradients"]]
    _points(late, numbers["gradients"], bias, "late")
    lowest = fmean(exact["late"])
    _reference(late, bias[1:], lambda x: lowest + x * x, r"exact $+$ bias$^2$")
    late.set_title("the same over the second half of the steps")
    late.set_xlabel(r"bias, mean of $\|\mathrm{E}\,\hat{g}_n - \nabla R\|$")
    for axes in (curves, squares, levels, late):
        axes.set(xscale="log", yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
        bare(axes, "y")
    titled(figure, "Theorem 3: how near to a stationary point SGD comes with a phantom gradient")
    handles = [
        _handle(_symbol(entry), color, dashes, marker, filled=entry["kind"] == "npg")
        for entry, (color, dashes, marker) in zip(numbers["gradients"], styles, strict=True)
    ]
    legend(figure, handles, 5, "means over the seeds")
    return figure


def _gradient_styles(gradients: Sequence[Case]) -> list[tuple[str, Any, str]]:
    """Return a style for each gradient: the same colours for NPG (solid) and UPG (dashed)."""
    styles: list[tuple[str, Any, str]] = []
    dashes = {"exact": (0, (1, 1.2)), "npg": "-", "upg": (0, (5, 2))}
    for entry in gradients:
        place = sum(g["kind"] == entry["kind"] for g in gradients[: len(styles)])
        marker = "none" if entry["kind"] == "exact" else _MARKS[place % len(_MARKS)]
        color = INK if entry["kind"] == "exact" else LINES[1:][place % (len(LINES) - 1)][0]
        styles.append((color, dashes[entry["kind"]], marker))
    return styles


def _points(axes: Axes, cases: Sequence[Case], x: Sequence[float], name: str) -> None:
    """Draw the mean of ``name`` of every gradient at its ``x``; the exact one is a line."""
    styles = _gradient_styles(cases)
    for case, here, (color, _, marker) in zip(cases, x, styles, strict=True):
        height = fmean(case[name])
        if case["kind"] == "exact":
            axes.axhline(height, color=INK, linewidth=1.2, linestyle=(0, (1, 1.2)))
            continue
        face = color if case["kind"] == "npg" else "white"
        axes.plot(here, height, color=color, marker=marker, markersize=6, markerfacecolor=face)


def _reference(axes: Axes, x: Sequence[float], height: Any, label: str) -> None:
    low, high = 0.8 * min(x), 1.25 * max(x)
    places = [low * (high / low) ** (i / 80) for i in range(81)]
    axes.plot(places, [height(p) for p in places], color=MUTED, linewidth=1, linestyle=(0, (5, 3)))
    axes.annotate(
        label,
        (places[48], height(places[48])),
        xytext=(-6, 5),
        ha="right",
        textcoords="offset points",
        color=MUTED,
        fontsize=8,
    )


def _symbol(entry: Case) -> str:
    if entry["kind"] == "exact":
        return "exact"
    return rf"{entry['kind'].upper()} $A_{{{entry['steps']},\,{entry['damping']}}}$"


def _styles(keys: Any) -> Styles:
    pairs = zip(keys, cycle(LINES), cycle(_MARKS), strict=False)
    return {key: (color, dashes, marker) for key, (color, dashes), marker in pairs}


def _handle(label: str, color: str, dashes: Any, marker: str, filled: bool = True) -> Line2D:
    return Line2D(
        [],
        [],
        color=color,
        linestyle=dashes,
        linewidth=1.3,
        marker=marker,
        markersize=5,
        markerfacecolor=color if filled else "white",
        label=label,
    )


def _whole_decades(axes: Axes) -> None:
    axes.yaxis.set_major_locator(LogLocator(numticks=7))
    axes.yaxis.set_minor_locator(NullLocator())
