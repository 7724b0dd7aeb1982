"""All gradient estimators on one bench: tables, and which of them no other one beats."""

from collections.abc import Callable, Sequence

from phantomgrad_suite.report.catalogue import Entry
from phantomgrad_suite.report.studies.parts import Numbers, Records, with_instance
from phantomgrad_suite.report.table import Section
from phantomgrad_suite.runs.records import StudyRecord

DIGITS = 5  # of a printed cosine
Cost = Callable[[Numbers], float]


def bench(entry: Entry, records: Records) -> list[Section]:
    """Return a section for each setting."""
    sections = []
    for record in records:
        numbers = record.numbers
        rows: list[Numbers] = numbers["estimators"]
        fronts = [front(rows, cost) for cost in (products, seconds)]
        cells = [
            {
                "Estimator": row["name"],
                "Cosine": f"{row['cosine']:.{DIGITS}f}",
                "Norm ratio": f"{row['norm_ratio']:.3f}",
                "Products": f"{products(row):g}{'*' * (row in fronts[0])}",
                "Time (ms)": f"{1e3 * row['seconds']:.2f}{'*' * (row in fronts[1])}",
                "Peak memory (MiB)": f"{row['peak_bytes'] / 2**20:.2f}",
            }
            for row in rows
        ]
        solve = numbers["solve"]
        text = entry.text["section"].format(
            clock=numbers["clock"],
            radius=numbers["radius"],
            residual=max(numbers["exact"].values()),
            evaluations=" + ".join(map(str, solve["evaluations"])),
            milliseconds=1e3 * solve["seconds"],
        )
        title = with_instance(record, setting_name(record), records)
        sections.append(Section.of(title, cells, text=text))
    return sections


def setting_name(record: StudyRecord) -> str:
    """Return the released model of a record, or its synthetic setting."""
    setting = record.setting
    drawn = f"Synthetic, {setting['nonlinearity']}, L = {setting['lipschitz']}"
    return f"Trained: {setting['model'].rpartition('/')[0]}" if setting["model"] else drawn


def products(row: Numbers) -> float:
    """Return the products of an estimate, over all layers."""
    return float(sum(row["products"]))


def seconds(row: Numbers) -> float:
    """Return the seconds of an estimate."""
    return float(row["seconds"])


def front(rows: Sequence[Numbers], cost: Cost) -> list[Numbers]:
    """Return the rows that no other one beats, by cost; cosines count as they are printed."""
    points = [(cost(row), round(row["cosine"], DIGITS)) for row in rows]
    best = [
        row
        for row, (x, cosine) in zip(rows, points, strict=True)
        if not any((c > cosine and y <= x) or (c == cosine and y < x) for y, c in points)
    ]
    return sorted(best, key=cost)
