"""Cosines and spectral radii that were measured along training (Figure 2), as a table."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import fmean

from phantomgrad_suite.report.catalogue import NOTES
from phantomgrad_suite.report.experiments.lines import Line
from phantomgrad_suite.report.table import Block, Row, Section

STEP = "precision/step"
RADII = {
    "precision/spectral_radius/F": r"$\rho(\partial F / \partial h)$",
    "precision/spectral_radius/F_damped": r"$\rho(\partial F_\lambda / \partial h)$",
}
"""The labels of spectral radii, by curve."""

_NAMES = dict(zip(RADII, ("spectral radius of F", "that of the damped map"), strict=True))
_RESIDUAL = "precision/exact/adjoint_residual"
_LARGEST = 0.01  # residual of an adjoint solve that counts as exact
_PHANTOM = re.compile(r"precision/(upg|npg)_k(\d+)_d([\d.]+)/cosine$")
_PRODUCTS = re.compile(r"precision/(gmres|preconditioned)_m(\d+)/cosine$")


def estimator_of(curve: str) -> tuple[str, str] | None:
    """Return the form of an estimator and its name, if the curve is its cosine."""
    if found := _PHANTOM.match(curve):
        return found[1].upper(), f"A({found[2]}, {found[3]})"
    if found := _PRODUCTS.match(curve):
        name = "GMRES" if found[1] == "gmres" else "preconditioned GMRES"
        return "Implicit", f"{name}({found[2]})"
    return None


def measured_lines(lines: Iterable[Line]) -> list[Line]:
    """Return the lines with measurements of :class:`.GradientPrecision`."""
    return [line for line in lines if any(line.curves(name) for name in RADII)]


def measurements(lines: Sequence[Line]) -> Iterator[Section]:
    """Yield a section with a block for each data set, and a column for each row of the table."""
    measured = measured_lines(lines)
    columns, blocks = list(dict.fromkeys(f"along {_name(x, measured)}" for x in measured)), []
    for _, group in groupby(measured, lambda line: (line.block, line.dataset)):
        members = list(group)
        found = {f"along {_name(line, measured)}": line for line in members}
        curves = dict.fromkeys(name for line in members for r in line.records for name in r.curves)
        rows = [
            Row({"Measured": label, **{c: _summary(found.get(c), name) for c in columns}})
            for name in sorted(curves, key=lambda name: (name in RADII, _label(name)))
            if (label := _label(name))
        ]
        blocks.append(Block(tuple(rows), members[0].dataset))
    if blocks:
        note = NOTES["measured"].format(residual=_LARGEST)
        yield Section.of("Along training", blocks, notes=[note])


def _name(line: Line, lines: Sequence[Line]) -> str:
    place = line.block, line.dataset, line.name
    twins = sum((other.block, other.dataset, other.name) == place for other in lines)
    return line.name if twins == 1 else f"{line.name} ({line.row.split('/')[-1]})"


def _label(curve: str) -> str:
    if estimator := estimator_of(curve):
        return f"cosine of {' '.join(estimator)}"
    own = f"cosine of {curve.split('/')[1]}" if curve.endswith("/cosine") else ""
    return _NAMES.get(curve, own)


def _summary(line: Line | None, name: str) -> str:
    """Return mean, least and largest value over runs and steps with an exact gradient."""
    values = [
        value
        for record in (line.records if line else ())
        for value, residual in zip(
            record.curves.get(name, ()), record.curves.get(_RESIDUAL, ()), strict=False
        )
        if value is not None and residual is not None and residual <= _LARGEST
    ]
    return f"{fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else ""
