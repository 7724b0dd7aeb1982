"""The figures of a reasoner along its training: gradients compared, and fixed points by segment."""

import math
import re
from collections.abc import Callable, Iterator

from phantomgrad_suite.report.catalogue import FIGURES
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.figures.plot import Curve, Plot, file_name
from phantomgrad_suite.report.figures.run_figures import bands_of, mean_curve, title_of
from phantomgrad_suite.report.table import Table

_ESTIMATE = re.compile(r"precision/(?:last_(\d+)|(upg|npg)_k(\d+)_d([\d.]+)|implicit)/cosine$")
_SEGMENT = re.compile(r"precision/segment(\d+)/residual$")
_QUANTITIES = {"cosine": "cosine", "norm_ratio": "ratio of norms"}
_BY_SEGMENT: dict[str, tuple[str, Callable[[float], float]]] = {
    "residual": ("log10 of the last recursion's residual", math.log10),
    "spectral_radius": ("spectral radius", float),
    "converged": ("share of fixed points found", float),
    "solved": ("share of puzzles solved", float),
}


def instruments(table: Table) -> Iterator[Plot]:
    """Yield two figures for each row that measures its segments."""
    for line in table.lines:
        if not line.curves("precision/segment1/residual"):
            continue
        leaf, title = line.row.partition("/")[2], title_of(table, line)
        gradients, segments = [*_gradients(line)], [*_segments(line)]
        yield Plot(
            *(file_name(table.key, leaf, "gradients"), FIGURES["segment_gradients"], title),
            *(gradients, "training step", bands_of(gradients)),
        )
        yield Plot(
            *(file_name(table.key, leaf, "segments"), FIGURES["segments"], title),
            *(segments, "segment", bands_of(segments)),
        )


def _gradients(line: Line) -> Iterator[Curve]:
    """Yield cosines and ratios along training: last steps above, estimators of G below."""
    x = line.curves("precision/step")[0]
    found = filter(None, map(_ESTIMATE.match, line.records[0].curves))
    for match in sorted(found, key=lambda m: (not m[1], int(m[1] or 0), m[2] or "", m[3])):
        steps, form, k, damping = match.groups()
        row = "the last j steps" if steps else "the recursion as a map"
        label = f"{form.upper()} A({k}, {damping})" if form else f"j = {steps}"
        label = label if form or steps else "implicit"
        for quantity, column in _QUANTITIES.items():
            runs = line.curves(match[0].replace("cosine", quantity))
            yield mean_curve(label, runs, (row, column), x=x)


def _segments(line: Line) -> Iterator[Curve]:
    """Yield what is measured by segment, a curve for each measured step."""
    steps = line.curves("precision/step")[0]
    x = [int(match[1]) for name in line.records[0].curves if (match := _SEGMENT.match(name))]
    for point, step in enumerate(steps):
        for quantity, (column, scaled) in _BY_SEGMENT.items():
            by_segment = [line.curves(f"precision/segment{n}/{quantity}") for n in x]
            runs = [
                [scaled(curve[point]) for curve in run] for run in zip(*by_segment, strict=True)
            ]
            yield mean_curve(f"step {step:g}", runs, ("mean over the puzzles", column), x=x)
