"""Builds a table: the paper's rows in its order, our runs beside them, more of ours below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phantomgrad_suite.report.collect import Group, describe, group_records
from phantomgrad_suite.report.layout import Block, Line, StepSpeeds, Table
from phantomgrad_suite.report.paper import SPEED, PaperNumber
from phantomgrad_suite.report.studies.throughput import place
from phantomgrad_suite.report.summary import summarise
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import Record, StudyRecord

TITLES = {
    "table1": "Table 1: Ablation settings on CIFAR-10",
    "table3": "Table 3: DEQ and MDEQ on vision and language",
    "table4": "Table 4: IGNN on graph tasks",
    "figure2": "Figure 2: Precision of the phantom gradient in training",
    "figure3": "Figure 3: Influence of λ and k, UPG and NPG",
    "tune": "Tuning: λ chosen on validation data",
    "chains": "Chains: IGNN on the embedded default data",
    "cifar10-jpeg": "CIFAR-10 as JPEG files of quality 75",
    "lm": "Python help: tiny DEQ-Transformers on the help texts of Python",
    "wikitext": "WikiText-103 (valid): small DEQ-Transformers on its validation text",
    "ppi": "PPI (synthetic): narrow IGNNs on random graphs in the shapes of PPI",
    "digits": "Digits: a convolutional DEQ on scikit-learn's handwritten digits",
}
_REDUCED, _LONG = "reduced", 60  # letters that would stretch a column and a legend
BLOCKS = {
    "": "As in the paper",
    "honest": "Stratified folds, one adjacency, epoch selected on validation data",
    "digits/implicit": "Digits",
    "table4/cox2_implicit": "COX2",
    "table1": "Rows of Table 1",
}


def build_table(
    name: str,
    paper: Sequence[PaperNumber],
    records: Sequence[Record],
    throughput: Sequence[StudyRecord] = (),
) -> Table:
    """Set our runs beside the paper's numbers.

    Args:
        name: the table.
        paper: the numbers of the paper, of this and other tables.
        records: the records of this table.
        throughput: what training steps take, of this and other tables.
    """
    numbers = [number for number in paper if number.table == name]
    groups = group_records(records)
    keys = dict.fromkeys([_block(n.row) for n in numbers])
    spelling = {_plain(n.dataset): n.dataset for n in numbers}
    keys |= dict.fromkeys(sorted(_block(g.row) for g in groups))
    blocks = []
    for key in keys:
        lines = _lines(
            [n for n in numbers if _block(n.row) == key],
            [g for g in groups if _block(g.row) == key],
            spelling,
        )
        lines = _in_order(_said_once(lines), numbers)
        blocks.append(Block(key, BLOCKS.get(key, key), tuple(lines)))
    rows = {line.row for block in blocks for line in block.lines}
    speeds = _by_place([s for r in throughput if rows & (s := _step_speeds(r)).faster.keys()])
    return Table(name, TITLES.get(name, name.capitalize()), tuple(blocks), speeds)


def _by_place(measured: Sequence[StepSpeeds]) -> tuple[StepSpeeds, ...]:
    """Return one for each hardware, of all rows that were measured there."""
    places: dict[str, list[StepSpeeds]] = {}
    for speeds in measured:
        places.setdefault(speeds.place, []).append(speeds)
    return tuple(
        StepSpeeds(
            place,
            "; ".join(dict.fromkeys(s.changes for s in found if s.changes)),
            {row: times for s in found for row, times in s.faster.items()},
        )
        for place, found in places.items()
    )


def _step_speeds(record: StudyRecord) -> StepSpeeds:
    rows = record.numbers["rows"]
    against = {row["baseline"] for row in rows}
    shown = {row["row"]: row.get("stands_for") or row["row"] for row in rows}
    faster = {shown[row["row"]]: row["faster"]["step"] for row in rows if row["baseline"]}
    faster |= {shown[row["row"]]: 1.0 for row in rows if row["row"] in against}
    return StepSpeeds(place(record), ", ".join(record.changes), faster)


def _lines(
    numbers: Sequence[PaperNumber], groups: Sequence[Group], spelling: dict[str, str]
) -> list[Line]:
    """Return a line for each group of runs, and one for each number of the paper left alone."""
    speeds = {n.row: n for n in numbers if n.metric == SPEED}
    results = {n.row: n for n in numbers if n.metric != SPEED}
    lines, met = [], set()
    for group in groups:
        number = results.get(group.row)
        beside = number if number and _comparable(number, group) else None
        line = _our_line(group, number, beside, groups)
        dataset = spelling.get(_plain(group.dataset), group.dataset)
        speed = speeds.get(group.row) if beside else None
        lines.append(replace(line, dataset=dataset, paper_speed=speed))
        if beside:
            met.add(group.row)
    for row, number in results.items():
        if row not in met:
            metric = metric_of(number.metric)
            lines.append(
                Line(
                    *(row, number.dataset, number.model, _method(number), number.params, metric),
                    paper=number,
                    paper_speed=speeds.get(row),
                )
            )
    return lines


def _our_line(
    group: Group, number: PaperNumber | None, beside: PaperNumber | None, groups: Sequence[Group]
) -> Line:
    label = group.records[0].label
    summary = summarise(group.records)
    neighbours = [g for g in groups if g.dataset == group.dataset]
    return Line(
        row=group.row,
        dataset=group.dataset,
        model=number.model if number else label.get("model", ""),
        method=_method(number) if number else label.get("method", group.row),
        params=beside.params if beside else _abbreviate(summary.mean("parameters", "total")),
        metric=summary.metric,
        variant=describe(group, neighbours),
        paper=beside,
        summary=summary,
    )


def _said_once(lines: Sequence[Line]) -> list[Line]:
    """Shorten a long variant where all runs on a data set share it."""
    variants: dict[str, set[str]] = {}
    for line in lines:
        if line.summary:
            variants.setdefault(line.dataset, set()).add(line.variant)
    shared = {d: next(iter(found)) for d, found in variants.items() if len(found) == 1}
    return [
        replace(line, variant=_REDUCED, shared=line.variant.removeprefix(f"{_REDUCED}: "))
        if line.variant == shared.get(line.dataset)
        and line.variant.startswith(f"{_REDUCED}: ")
        and len(line.variant) > _LONG
        else line
        for line in lines
    ]


def _method(number: PaperNumber) -> str:
    """Return the printed method, with the paper's mark where only that tells two rows apart."""
    return f"{number.method} †" if number.note.startswith("†") else number.method


def _comparable(number: PaperNumber, group: Group) -> bool:
    """Return whether the paper's number may stand beside these runs."""
    same_data = _plain(number.dataset) == _plain(group.dataset)
    return same_data and number.metric == group.metric and not group.reduction


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _block(row: str) -> str:
    return "/".join(row.split("/")[1:-1])


def _abbreviate(count: float | None) -> str:
    """Write a number of parameters as the paper does."""
    if count is None:
        return ""
    if count < 1e6:
        return f"{count / 1e3:.0f}K" if count >= 1e4 else f"{count / 1e3:.1f}K"
    return f"{count / 1e6:.0f}M" if count >= 1e7 else f"{count / 1e6:.1f}M"


def _in_order(lines: Sequence[Line], numbers: Sequence[PaperNumber]) -> list[Line]:
    """Sort lines: data sets and rows as in the paper, then ours; variants last within a row."""
    datasets = list(dict.fromkeys(_plain(number.dataset) for number in numbers))
    rows = list(dict.fromkeys(_leaf(number.row) for number in numbers))

    def key(line: Line) -> tuple[object, ...]:
        dataset, leaf = _plain(line.dataset), _leaf(line.row)
        return (
            datasets.index(dataset) if dataset in datasets else len(datasets),
            dataset,
            rows.index(leaf) if leaf in rows else len(rows),
            not leaf.endswith("implicit"),
            leaf,
            line.paper is None,
            line.variant,
        )

    return sorted(lines, key=key)


def _leaf(row: str) -> str:
    return row.split("/")[-1]
