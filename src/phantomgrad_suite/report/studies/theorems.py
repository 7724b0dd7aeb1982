"""The theorems of the paper as measurements."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import fmean, stdev

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.document import DASH, Section, section
from phantomgrad_suite.report.studies.parts import Numbers, Records


def theorems(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield a section for each theorem that has a record."""
    known = {record.row: record for record in reversed(records)}  # the first one of each row
    makers = (
        ("descent", "descent", _descent, 3),
        ("descent", "conditioning", _conditioning, 3),
        ("series", "series", _series, 2),
        ("sgd", "sgd", _sgd, 1),
    )
    for row, name, make, words in makers:
        if record := known.get(f"theorems/{row}"):
            title, text, *notes = entry.text[name].strip().split("\n")
            text = text.format(**record.setting)
            rows = make(record.numbers)
            yield section(title, rows, words, text=text, notes=notes)


def _settings(numbers: Numbers) -> Iterator[tuple[dict[str, str], list[Numbers]]]:
    """Yield the cells that name a setting of Theorem 1, with its cases by k."""

    def key(case: Numbers) -> tuple[float, bool, float]:
        return case["lipschitz"], case["wanted"] == "input", case["damping"]

    for (lipschitz, by_input, damping), cases in groupby(sorted(numbers["cases"], key=key), key):
        names = {"L_h": f"{lipschitz:g}", "θ": "u" if by_input else "W", "λ": f"{damping:g}"}
        yield names, list(cases)


def _descent(numbers: Numbers) -> list[dict[str, str]]:
    return [
        {
            **names,
            "1/κ²": _short(cases[0]["reduced_right"]),
            **{f"k = {case['steps']}": f"{100 * case['holds']:.0f}" for case in cases},
            "Ascent": f"{100 * min(case['every'] for case in cases):.0f}",
            "Least cosine": f"{min(case['cosine']['min'] for case in cases):.3f}",
        }
        for names, cases in _settings(numbers)
    ]


def _conditioning(numbers: Numbers) -> list[dict[str, str]]:
    return [
        {**names, **{f"k = {x['steps']}": _short(x["condition"] or math.inf) for x in cases}}
        for names, cases in _settings(numbers)
    ]


def _series(numbers: Numbers) -> list[dict[str, str]]:
    rates = {(c["lipschitz"], c["damping"], c["start"]): c["rate"] for c in numbers["unrolled"]}
    rows = []
    for case in numbers["neumann"]:
        key = (case["lipschitz"], case["damping"])
        errors = zip(numbers["steps"], case["error"], strict=True)
        rows.append(
            {
                "L_h": f"{case['lipschitz']:g}",
                "λ": f"{case['damping']:g}",
                "‖B‖": f"{case['norm']:.4f}",
                "Radius of B": f"{case['radius']:.4f}",
                "(i)": f"{case['rate']:.4f}",
                "(ii), h₀ = 0": f"{rates[*key, 'zero']:.4f}",
                "(ii), h₀ rough": f"{rates[*key, 'rough']:.4f}",
                "k to 1 %": next((str(k) for k, error in errors if error < 0.01), DASH),
                "Looseness": f"{case['looseness']:.2f}",
            }
        )
    return rows


def _sgd(numbers: Numbers) -> list[dict[str, str]]:
    return [
        {
            "Gradient": gradient_name(case),
            "ε": _short(fmean(case["epsilon"]["max"])),
            "Mean error": _short(fmean(case["epsilon"]["mean"])),
            "Bias": _short(fmean(case["bias"])),
            "Left side": _short(fmean(case["level"])) + _spread(case["level"]),
            "Second half": _short(fmean(case["late"])),
            "R at the end": f"{fmean(case['risk']):.4f}",
        }
        for case in numbers["gradients"]
    ]


def _spread(values: Sequence[float]) -> str:
    return f" ± {_short(stdev(values))}" if len(values) > 1 else ""


def gradient_name(case: Numbers) -> str:
    """Return the name of a gradient of Theorem 3."""
    if case["kind"] == "exact":
        return "Exact"
    return f"{case['kind'].upper()} A({case['steps']}, {case['damping']})"


def _short(value: float) -> str:
    return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.3g}"
