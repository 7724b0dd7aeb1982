"""The forest plot: what each of the paper's primary claims says, and what our runs say."""

import math
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from phantomgrad_suite.report.claims.claims_table import PAPER, Judged, Part
from phantomgrad_suite.report.claims.evidence import Effect
from phantomgrad_suite.report.claims.verdicts import Verdict
from phantomgrad_suite.report.figures.plot import pretty, rendered

COLORS = {
    Verdict.HOLDS: "#00694f",
    Verdict.TOWARDS: "#56a98c",
    Verdict.AGAINST: "#c9822b",
    Verdict.CONTRADICTED: "#a3210f",
    Verdict.UNTESTED: "#8a8a8a",
}
"""The colours of the verdicts, on the page too."""

_LINE, _HEAD, _AXIS = 0.33, 0.27, 0.62  # inches: a claim, a title, an axis with its label
_TITLE, _KEY = 0.55, 0.3  # the title and the key of the figure
_LONG = 84  # letters of a claim that would run into its verdict
_WIDTH, _REACH, _TIMES = 6.6, 6.0, (0.5, 16.0)
_MEANING = {
    False: "difference of scores in points (perplexities: in %); to the right: as the paper says",
    True: "how many times as fast; to the right of 1: as the paper says",
}


class Line(NamedTuple):
    """A line of the plot: the title of a family, or a claim."""

    title: str = ""
    judged: Judged | None = None


def forest(parts: Sequence[Part], title: str) -> dict[str, bytes]:
    """Return the figure of :func:`draw` in every format."""
    return rendered(lambda: draw(parts, title))


def _lines(parts: Sequence[Part], *, speed: bool) -> Iterator[Line]:
    for part in parts:
        if part.rank != "primary" or part.family.source != PAPER:
            continue
        if any(map(_is_speed, part.claims)) == speed:
            yield Line(part.family.title)
            yield from (Line(judged=judged) for judged in part.claims)


def _is_speed(judged: Judged) -> bool:
    return judged.evidence.effect is not None and judged.evidence.effect.unit == "times"


def draw(parts: Sequence[Part], title: str) -> Figure:
    """Draw the primary claims of the paper: those on scores, then those on speed."""
    panels = [list(_lines(parts, speed=speed)) for speed in (False, True)]
    panels = [lines for lines in panels if lines]
    heights = [sum(_LINE if x.judged else _HEAD for x in lines) for lines in panels]
    whole = sum(heights) + _AXIS * len(panels) + _TITLE + _KEY
    figure = Figure(figsize=(_WIDTH, whole))
    figure.text(0.03, 1 - 0.15 / whole, fill(title, 78), weight="bold", fontsize=10, va="top")
    top = whole - _TITLE
    for lines, height in zip(panels, heights, strict=True):
        top -= height
        _panel(figure.add_axes((0.03, top / whole, 0.94, height / whole)), lines, height)
        top -= _AXIS
    ours = Line2D([], [], color="#222222", marker="o", markersize=4.5, linewidth=1.6)
    paper = Line2D([], [], color="#222222", marker="D", fillstyle="none", markersize=4, ls="none")
    labels = ["ours, 95 % interval", "the paper's difference", "within the margin: as good"]
    keys = [ours, paper, Patch(color="#e4e4e4")]
    figure.legend(keys, labels, loc="lower center", ncols=3, fontsize=7.5)
    return figure


def _panel(axes: Axes, lines: Sequence[Line], height: float) -> None:
    """Draw lines from the top; heights are in inches from there."""
    speed = any(x.judged and _is_speed(x.judged) for x in lines)
    axes.set(ylim=(height, 0), xlim=_TIMES if speed else (-_REACH, _REACH))
    axes.set_xlabel(_MEANING[speed])
    if speed:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0, which="both")
    axes.grid(visible=True, axis="x")
    axes.axvline(1 if speed else 0, color="#222222", linewidth=0.9)
    y = 0.0
    for line in lines:
        if line.judged is None:
            _text(axes, 0, y + 0.19, line.title, weight="bold")
        else:
            _claim(axes, line.judged, y)
        y += _LINE if line.judged else _HEAD


def _text(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    axes.text(x, y, text, transform=axes.get_yaxis_transform(), **options)


def _claim(axes: Axes, judged: Judged, y: float) -> None:
    verdict, effect = judged.finding.verdict, judged.evidence.effect
    color = COLORS[verdict]
    words = judged.claim.claim
    _text(axes, 0, y + 0.12, pretty(words), fontsize=7.5 if len(words) < _LONG else 6.7)
    _text(axes, 1, y + 0.12, verdict, color=color, fontsize=7.5, ha="right", weight="bold")
    if effect is not None:
        _effect(axes, effect, y + 0.22, color)


def _effect(axes: Axes, effect: Effect, y: float, color: str) -> None:
    low, high = axes.get_xlim()
    if effect.margin:
        ends = [-effect.margin, effect.margin]
        axes.fill_between(ends, y - 0.07, y + 0.07, color="#e4e4e4", linewidth=0)
    if math.isfinite(effect.low):
        ends = [max(effect.low, low), min(effect.high, high)]
        axes.plot(ends, [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
    for end, limit, marker in ((effect.low, low, "<"), (effect.high, high, ">")):
        if not low <= end <= high and math.isfinite(end):
            axes.plot(limit, y, marker, color=color, markersize=4, clip_on=False)
    axes.plot(effect.mean, y, "o", color=color, markersize=4.5)
    if math.isfinite(effect.paper):
        axes.plot(effect.paper, y, "D", color="#222222", fillstyle="none", markersize=4)
