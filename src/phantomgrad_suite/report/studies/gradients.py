"""All gradient estimators on one bench: tables, and which of them no other one beats."""

import re
from collections.abc import Iterator, Sequence

from phantomgrad_suite.report.catalogue import BLOCKS, Entry, entry_of
from phantomgrad_suite.report.document import Section, section
from phantomgrad_suite.report.studies.parts import Numbers, Records, with_instance
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.records import StudyRecord

COSTS = ("products", "milliseconds")
DIGITS = 5  # of a printed cosine


def bench(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield a section for each setting."""
    for record in records:
        numbers, solve, rows = record.numbers, record.numbers["solve"], estimators(record)
        fewest, fastest = (front(rows, cost) for cost in COSTS)
        cells = [
            {
                "Estimator": row["name"],
                "Cosine": f"{row['cosine']:.{DIGITS}f}",
                "Norm ratio": f"{row['norm_ratio']:.3f}",
                "Products": f"{row['products']}{'*' * (row in fewest)}",
                "Time (ms)": f"{row['milliseconds']:.2f}{'*' * (row in fastest)}",
                "Peak memory (MiB)": f"{row['peak_bytes'] / 2**20:.2f}",
            }
            for row in rows
        ]
        text = entry.text["section"].format(
            clock=numbers["clock"],
            radius=numbers["radius"],
            residual=max(numbers["exact"].values()),
            evaluations=" + ".join(map(str, solve["evaluations"])),
            milliseconds=1e3 * solve["seconds"],
        )
        title = with_instance(record, setting_name(record), records)
        yield section(title, cells, text=text)


def setting_name(record: StudyRecord) -> str:
    """Return the trained model of a record, or its synthetic setting."""
    setting = record.setting
    if setting["model"]:
        scale, row = split_row(re.sub(r"/seed[^/]*$", "", setting["model"]))
        table, _, name = row.rpartition("/")
        of = ", ".join(filter(None, (entry_of(table).label, BLOCKS.get(scale or "-"))))
        return f"Trained ({of}): {name}"
    return f"Synthetic, {setting['nonlinearity']}, L = {setting['lipschitz']}"


def estimators(record: StudyRecord) -> list[Numbers]:
    """Return the rows of a record, with products over all layers, and milliseconds."""
    return [
        {**row, "products": sum(row["products"]), "milliseconds": 1e3 * row["seconds"]}
        for row in record.numbers["estimators"]
    ]


def front(rows: Sequence[Numbers], cost: str) -> list[Numbers]:
    """Return the rows that no other one beats, by cost; cosines count as they are printed."""
    points = [(row[cost], round(row["cosine"], DIGITS)) for row in rows]
    best = [
        row
        for row, (x, cosine) in zip(rows, points, strict=True)
        if not any((c > cosine and y <= x) or (c == cosine and y < x) for y, c in points)
    ]
    return sorted(best, key=lambda row: row[cost])
