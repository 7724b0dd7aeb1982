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

from phantomgrad_suite.report.claims.evidence import Effect
from phantomgrad_suite.report.claims.inference import Verdict
from phantomgrad_suite.report.figures.style import pretty

COLORS = {
    Verdict.HOLDS: "#00694f",
    Verdict.TOWARDS: "#56a98c",
    Verdict.AGAINST: "#c9822b",
    Verdict.CONTRADICTED: "#a3210f",
    Verdict.UNTESTED: "#8a8a8a",
}
"""The colours of the verdicts, on the page too."""

_DARK, _PALE = "#222222", "#e4e4e4"
_LINE, _HEAD, _AXIS = 0.33, 0.27, 0.62  # inches: a claim, a title, an axis with its label
_TITLE, _KEY = 0.55, 0.3  # the title and the key of the figure
_LONG = 84  # letters of a claim that would run into its verdict
_WIDTH = 6.6
_SCORES = "difference of scores in points (perplexities: in %); to the right: as the paper says"
_SPEEDS = "how many times as fast; to the right of 1: as the paper says"


def draw(claims: pd.DataFrame, title: str) -> Figure:
    """Draw claims, lines of a judgement: families on scores, then those on speed."""
    families = [family for _, family in claims.groupby("title", sort=False)]
    panels = [[f for f in families if _of_speed(f) == speed] for speed in (False, True)]
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
    ours = Line2D([], [], color=_DARK, marker="o", markersize=4.5, linewidth=1.6)
    paper = Line2D([], [], color=_DARK, marker="D", fillstyle="none", markersize=4, ls="none")
    labels = ["ours, 95 % interval", "the paper's difference", "within the margin: as good"]
    keys = [ours, paper, Patch(color=_PALE)]
    figure.legend(keys, labels, loc="lower center", ncols=3, fontsize=7.5)
    return figure


def _of_speed(family: pd.DataFrame) -> bool:
    effects = [evidence.effect for evidence in family["evidence"]]
    return any(effect is not None and effect.unit == "times" for effect in effects)


def _panel(axes: Axes, families: Sequence[pd.DataFrame], height: float) -> None:
    """Draw families from the top; heights are in inches from there."""
    if _of_speed(families[0]):
        axes.set(xlim=(0.5, 16.0), xlabel=_SPEEDS)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
    else:
        axes.set(xlim=(-7.0, 7.0), xlabel=_SCORES)
    axes.set_ylim(height, 0)
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=0, which="both")
    axes.grid(visible=True, axis="x")
    axes.axvline(1 if _of_speed(families[0]) else 0, color=_DARK, linewidth=0.9)
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
    color, words = COLORS[line.verdict], line.claim.claim
    _text(axes, 0, y + 0.12, pretty(words), fontsize=7.5 if len(words) < _LONG else 6.7)
    _text(axes, 1, y + 0.12, line.verdict, color=color, fontsize=7.5, ha="right", weight="bold")
    if line.evidence.effect is not None:
        _effect(axes, line.evidence.effect, y + 0.22, color)


def _effect(axes: Axes, effect: Effect, y: float, color: str) -> None:
    """Draw an effect; an interval that leaves the axes ends in an arrow."""
    low, high = axes.get_xlim()
    if effect.margin:
        ends = [-effect.margin, effect.margin]
        axes.fill_between(ends, y - 0.07, y + 0.07, color=_PALE, linewidth=0)
    if math.isfinite(effect.low):
        ends = [max(effect.low, low), min(effect.high, high)]
        axes.plot(ends, [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
    for end, limit, marker in ((effect.low, low, "<"), (effect.high, high, ">")):
        if not low <= end <= high and math.isfinite(end):
            axes.plot(limit, y, marker, color=color, markersize=4, clip_on=False)
    axes.plot(effect.mean, y, "o", color=color, markersize=4.5)
    if math.isfinite(effect.paper):
        axes.plot(effect.paper, y, "D", color=_DARK, fillstyle="none", markersize=4)
