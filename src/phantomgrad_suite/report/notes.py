"""What must be said below a table for its numbers to be read rightly."""

from __future__ import annotations

from phantomgrad_suite.report.layout import Line, Table
from phantomgrad_suite.report.tables import note_marks, number

_DEFINITIONS = (
    ("Best", "the best test value over the epochs of each run, so chosen on the test data"),
    ("Last", "the test value after the last epoch"),
    ("Common", "the one epoch, in parentheses, with the best mean test value over the runs"),
    ("Selected", "the test value at the epoch each run chose on validation data"),
    ("Searched by", "what the search chose a trial by, at each run's best epoch; mean over n runs"),
)


def notes(table: Table, headings: tuple[str, ...]) -> list[str]:
    """Return the notes below the results, each a sentence."""
    found = ["Mean ± population standard deviation (ddof 0) over n runs (folds and seeds)."]
    found += [
        f"{name}: {meaning}."
        for name, meaning in _DEFINITIONS
        if any(heading.startswith(name) for heading in headings)
    ]
    if "Speed" in headings:
        found.append(
            "Speed: seconds of an epoch of the data set's 1.0 row over those of this row, "
            "where both were run on the same hardware."
        )
    found += [
        f"{speeds.heading}: how many times less time a sample takes in a training step than in the "
        "1.0 row's, measured on synthetic batches with random weights, whether or not the row was "
        "trained"
        + (f"; not the paper's setting, reduced: {speeds.changes}" if speeds.changes else "")
        + " (throughput.md has the phases)."
        for speeds in table.speeds
        if speeds.heading in headings
    ]
    found += [_paper_note(table, note, mark) for note, mark in note_marks(table).items()]
    found += _warnings(table)
    return found


def cost_notes(table: Table, headings: tuple[str, ...]) -> list[str]:
    """Return the notes below the costs."""
    hardware = sorted({h for line in table.lines if line.summary for h in line.summary.hardware})
    found = [
        "s / epoch: training and evaluation of one epoch, mean over the runs; wall clock (other "
        "work on the machine counts) and, where recorded, processor time.",
        "All runs: seconds of all runs together.",
        "f / solve: evaluations of f in a forward solve, mean over training.",
    ]
    if "Adjoint / solve" in headings:
        found.append(
            "Adjoint / solve: products with the transposed Jacobian in a backward solve, likewise; "
            "a dash where none is solved."
        )
    return [*found, f"Run on: {'; '.join(hardware)}."]


def _paper_note(table: Table, note: str, mark: str) -> str:
    text = f"{mark} Paper: {note.removeprefix(mark).strip()}."
    ours = [
        f"{line.name} {number(line.summary.top, line.metric)}"
        for line in table.lines
        if line.paper and line.paper.note == note and line.summary and line.summary.top is not None
    ]
    if note.startswith("best of") and ours:
        text += f" The best of our runs: {', '.join(ours)}."
    return text


def _warnings(table: Table) -> list[str]:
    found = []
    if any(line.variant for line in table.lines):
        found.append(
            "[…] says by what runs differ (protocol, data, configuration): "
            "lines that differ in it are not to be compared."
        )
    found += [
        f"{dataset}, reduced: {what}."
        for dataset, what in dict.fromkeys((x.dataset, x.shared) for x in table.lines if x.shared)
    ]
    summaries = [line.summary for line in table.lines if line.summary]
    stats = [(s.n, stat) for s in summaries for stat in (s.best, s.last, s.selected)]
    if any(stat is not None and stat.n < n for n, stat in stats):
        found.append("[m/n]: only m of the n runs have a finite value; the mean is over these.")
    found += [note for line in table.lines if line.summary for note in _at_memories(line)]
    return found + [
        _collapse(line) for line in table.lines if line.summary and line.summary.collapses
    ]


def _at_memories(line: Line) -> list[str]:
    """Return what evaluations at another memory than in training have found."""
    assert line.summary is not None
    found: dict[str, list[float]] = {}
    for record in line.summary.records:
        for name, curve in record.curves.items():
            known = [value for value in curve if value is not None]
            if name.startswith(f"{line.metric.curve}_at_") and known:
                found.setdefault(name.rsplit("_", 1)[1], []).append(min(known))
    means = {length: number(sum(best) / len(best), line.metric) for length, best in found.items()}
    return [
        f"{line.dataset}, {line.name}: {mean} where evaluation remembers {length} positions (best "
        "epoch of each run)."
        for length, mean in means.items()
    ]


def _collapse(line: Line) -> str:
    assert line.summary is not None
    epochs, n = line.summary.collapses, line.summary.n
    return (
        f"{line.dataset}, {line.name}: training collapsed in {len(epochs)} of {n} runs (noticed in "
        f"epoch {', '.join(map(str, epochs))})."
    )
