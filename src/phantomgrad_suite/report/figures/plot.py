"""A figure as data, and the function that draws it.

A :class:`Plot` is a grid of panels, a panel a list of marks (lines, whiskers, violins, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import Locator

from phantomgrad_suite.report.figures.style import MUTED, Look

Mark = Callable[[Axes], Any]
"""Draws something into a panel."""


def mark(method: Callable[..., Any], *arguments: Any, **look: Any) -> Mark:
    """Return the call of a method of ``Axes``, for example ``mark(Axes.axhline, 1)``."""
    return lambda axes: method(axes, *arguments, **look)


@dataclass(frozen=True)
class Line:
    """A line or points, in front of a band between two edges."""

    x: Any
    y: Any
    look: Look
    band: tuple[Any, Any] | None = None

    def __call__(self, axes: Axes) -> None:
        """Draw it."""
        if self.band is not None:
            shade = {"color": self.look["color"], "alpha": 0.11, "linewidth": 0}
            axes.fill_between(self.x, *self.band, **shade)
        axes.plot(self.x, self.y, **self.look)


@dataclass(frozen=True)
class Panel:
    """A panel.

    Attributes:
        marks: what it shows.
        axes: properties for ``Axes.set``, applied in their order: titles, scales, limits, ticks.
        grid: the axis whose grid lines are drawn.
        subtitle: a quieter title at the right.
        locators: of the major ticks, by axis.
        plain: whether the y axis has plain numbers instead of powers of 10.
    """

    marks: Sequence[Mark]
    axes: Look
    grid: str = "y"
    subtitle: str = ""
    locators: Mapping[str, Locator] = field(default_factory=dict)
    plain: bool = False

    def draw(self, axes: Axes) -> None:
        """Draw the marks, then set scales, limits and ticks."""
        for drawn in self.marks:
            drawn(axes)
        axes.set(**self.axes)
        axes.set_title(self.subtitle, loc="right", fontsize=7.5, fontweight="normal", color=MUTED)
        for name, locator in self.locators.items():
            getattr(axes, f"{name}axis").set_major_locator(locator)
        if self.plain:
            axes.yaxis.set_major_formatter("{x:g}")
        if self.locators:
            axes.minorticks_off()
        axes.grid(visible=True, axis="x" if self.grid == "x" else "y")
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(self.grid == "y")


@dataclass(frozen=True)
class Plot:
    """A figure.

    Attributes:
        name: of its files, without the ending.
        caption: on the page.
        title: of the whole figure.
        size: width and height in inches.
        panels: the rows of the grid; ``None`` leaves a place empty.
        legend: label and look of each entry.
        note: the explanation above the legend, for example of bands.
        options: for ``Figure.subplots``, for example shared axes.
        columns: of the legend, 0 for one row.
    """

    name: str
    caption: str
    title: str
    size: tuple[float, float]
    panels: Sequence[Sequence[Panel | None]]
    legend: Sequence[tuple[str, Look]]
    note: str
    options: Look = field(default_factory=dict)
    columns: int = 0

    def draw(self) -> Figure:
        """Return the figure."""
        figure = Figure(figsize=self.size, layout="constrained")
        shape = (len(self.panels), len(self.panels[0]))
        grid = figure.subplots(*shape, squeeze=False, **self.options)
        figure.suptitle(self.title, x=0.012, ha="left")
        for axes, panel in zip(grid.flat, chain(*self.panels), strict=True):
            axes.set_visible(panel is not None)
            if panel is not None:
                panel.draw(axes)
        box = figure.legend(
            handles=[Line2D([], [], label=label, **look) for label, look in self.legend],
            loc="outside lower center",
            ncols=self.columns or len(self.legend),
            title=self.note,
        )
        box.get_title().set_color(MUTED)
        return figure


def file_name(*parts: str) -> str:
    """Return a name made of ``parts`` that are not empty, without dots and slashes."""
    return "_".join(part.replace("/", "_").replace(".", "") for part in parts if part)
