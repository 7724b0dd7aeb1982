"""The forest plot: what each of the paper's primary claims says, and what our runs say."""

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from phantomgrad_suite.report.claims.evidence import Effect, Evidence
from phantomgrad_suite.report.claims.inference import Verdict
from phantomgrad_suite.report.figures.style import pretty, render

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


def forest(claims: pd.DataFrame, title: str) -> dict[str, bytes]:
    """Return the figure of :func:`draw` in every format."""
    return render(lambda: draw(claims, title))


def draw(claims: pd.DataFrame, title: str) -> Figure:
    """Draw claims, lines of a judgement: families on scores, then those on speed."""
    families = [family for _, family in claims.groupby("title", sort=False)]
    fast = [any(map(_is_speed, family["evidence"])) for family in families]
    panels = [
        [f for f, is_fast in zip(families, fast, strict=True) if is_fast == s] for s in (0, 1)
    ]
    panels = [panel for panel in panels if panel]
    heights = [sum(_HEAD + _LINE * len(family) for family in panel) for panel in panels]
    whole = sum(heights) + _AXIS * len(panels) + _TITLE + _KEY
    figure = Figure(figsize=(_WIDTH, whole))
    figure.text(0.03, 1 - 0.15 / whole, fill(title, 78), weight="bold", fontsize=10, va="top")
    top = whole - _TITLE
    for panel, height in zip(panels, heights, strict=True):
        top -= height
        _panel(figure.add_axes((0.03, top / whole, 0.94, height / whole)), panel, height)
        top -= _AXIS
    ours = Line2D([], [], color="#222222", marker="o", markersize=4.5, linewidth=1.6)
    paper = Line2D([], [], color="#222222", marker="D", fillstyle="none", markersize=4, ls="none")
    labels = ["ours, 95 % interval", "the paper's difference", "within the margin: as good"]
    keys = [ours, paper, Patch(color="#e4e4e4")]
    figure.legend(keys, labels, loc="lower center", ncols=3, fontsize=7.5)
    return figure


def _is_speed(evidence: Evidence) -> bool:
    return evidence.effect is not None and evidence.effect.unit == "times"


def _panel(axes: Axes, families: Sequence[pd.DataFrame], height: float) -> None:
    """Draw families from the top; heights are in inches from there."""
    speed = any(_is_speed(evidence) for family in families for evidence in family["evidence"])
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
    for family in families:
        _text(axes, 0, y + 0.19, family["title"].iloc[0], weight="bold")
        y += _HEAD
        for line in family.itertuples():
            _claim(axes, line, y)
            y += _LINE


def _text(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # hides the line at zero
    axes.text(x, y, text, transform=axes.get_yaxis_transform(), bbox=behind, **options)


def _claim(axes: Axes, line: Any, y: float) -> None:
    verdict, effect = line.verdict, line.evidence.effect
    color = COLORS[verdict]
    words = line.claim.claim
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
