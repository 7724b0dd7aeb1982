"""The experiments of a table: a line for each group of runs, and for each number of the paper.

A group has one row, protocol, configuration and metric, and the same data. Its scores are those of
its runs that did not diverge; ``n`` counts all.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from phantomgrad_suite.report.baselines import Baselines
from phantomgrad_suite.report.catalogue import DATASETS
from phantomgrad_suite.report.frame import block_of, by_epoch
from phantomgrad_suite.report.inputs import SPEED, PaperNumber
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.metrics import Metric, metric_of

SCORES = ("best", "last", "selected", "common")
"""At the best test epoch of each run, the last one, that selected on validation data, and the one
epoch that all runs have and whose mean is best."""
_MEANS = ["evaluations", "adjoint_evaluations", "parameters", "step_in_f", "cpu_over_wall"]
# The columns of the frame. Where a line has no value, words are empty, counts 0, numbers NaN.
_WORDS = ["row", "unscaled", "scale", "block", "dataset", "key", "model", "method", "params"]
_WORDS += ["metric", "mode", "protocol", "fingerprint", "config_hash", "reduction", "scaled"]
_WORDS += ["variant", "fate", "family", "form", "searched", "direction", "paper", "paper_note"]
_COUNTS = ["n", "lost", "common_epoch", "steps", "objective_n", *(f"{s}_n" for s in SCORES)]
_NUMBERS = ["experiment", "damping", "objective", "peak_bytes", "paper_value", "paper_spread"]
_NUMBERS += [*_MEANS, *SCORES, *(f"{s}_std" for s in SCORES)]


def experiments_of(
    runs: pd.DataFrame, numbers: Sequence[PaperNumber], baselines: Baselines
) -> pd.DataFrame:
    """Return the experiments in the order of the paper, then others; reduced ones come last."""
    measured = _with_paper(_measured(runs), numbers) if len(runs) else []
    compared = {line["row"] for line in measured if line["paper"]}
    printed = [n for n in numbers if n.metric != SPEED and n.row not in compared]
    lines = [*measured, *map(_printed, printed)]
    found = pd.DataFrame(lines, columns=[*_WORDS, *_COUNTS, *_NUMBERS])
    found[_WORDS] = found[_WORDS].astype(object).fillna("")
    found[_COUNTS] = found[_COUNTS].astype(float).fillna(0).astype(int)
    found[_NUMBERS] = found[_NUMBERS].astype(float)
    spelling = {plain(number.dataset): number.dataset for number in numbers}
    found["dataset"] = [spelling.get(plain(name), name) for name in found["dataset"]]
    found = _judged(found, baselines)
    keys = [_order(line, numbers) for line in found.itertuples()]
    order = sorted(range(len(found)), key=keys.__getitem__)
    return found.iloc[order].reset_index(drop=True)


def _measured(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each experiment in the frame of runs, with means and deviations."""
    groups = runs.groupby("experiment", sort=False)
    found = runs.drop_duplicates("experiment").set_index("experiment").copy()
    finished = runs[~runs["diverged"]].groupby("experiment", sort=False)
    for score in ("best", "last", "selected", "objective"):
        values = finished[score].agg(["mean", "std", "count"])
        found[[score, f"{score}_std", f"{score}_n"]] = values
    found[_MEANS] = finished[_MEANS].mean()
    found["peak_bytes"] = finished["peak_bytes"].max()
    found["n"], found["lost"] = groups.size(), groups["diverged"].sum()
    common = [
        _common(list(group.loc[~group["diverged"], "record"]), metric_of_line(found.loc[i]))
        for i, group in groups
    ]
    found[["common", "common_std", "common_n", "common_epoch"]] = common
    counted = [
        f"{n} run{'s' * (n != 1)}, {lost} diverged"
        for n, lost in zip(found["n"], found["lost"], strict=True)
    ]
    found["fate"] = np.where(found["lost"] > 0, counted, "")
    found["dataset"] = [DATASETS.get(key, key) for key in found["key"]]
    found["variant"] = _variants(found)
    return found.reset_index()


def metric_of_line(line: Any) -> Metric:
    """Return the metric of an experiment."""
    return metric_of(line.metric, line.mode or "max")


def _common(records: Sequence[Any], metric: Metric) -> tuple[float, float, int, int]:
    """Return mean, deviation and number of values at the common epoch, counted from 1."""
    curves = by_epoch([record.curves.get(metric.curve, []) for record in records]).dropna()
    if curves.empty:
        return float("nan"), float("nan"), 0, 0
    means = curves.mean(axis=1)
    epoch = means.idxmax() if metric.higher_is_better else means.idxmin()
    return means[epoch], curves.loc[epoch].std(), curves.shape[1], epoch + 1


def _variants(found: pd.DataFrame) -> list[str]:
    """Return how experiments differ from the full protocol and from others on their data set.

    Data are named where rows of one data set differ in them, a configuration where one row has
    several.
    """
    place = ["block", "dataset", "reduction"]
    data = found.groupby(place)["fingerprint"].transform("nunique")
    settings = found.groupby([*place, "row", "fingerprint"])["config_hash"].transform("nunique")
    variants = []
    for line, several_data, several_settings in zip(
        found.itertuples(), data, settings, strict=True
    ):
        parts = [line.reduction]
        parts += [f"data {short(line.fingerprint)}"] if several_data > 1 else []
        parts += [f"configuration {short(line.config_hash)}"] if several_settings > 1 else []
        variants.append("; ".join(filter(None, parts)))
    return variants


def _with_paper(found: pd.DataFrame, numbers: Sequence[PaperNumber]) -> list[dict[str, Any]]:
    """Return experiments with the paper's names, and its numbers where they may be compared."""
    papers = {number.row: number for number in numbers if number.metric != SPEED}
    lines = []
    for line in found.to_dict("records"):
        number, count = papers.get(line["unscaled"]), line["parameters"]
        line |= {"params": _abbreviate(count), "paper": ""}
        if number:
            printed = _printed(number)
            line |= {name: printed[name] for name in ("model", "method")}
            same = plain(number.dataset) == plain(line["dataset"])
            if same and number.metric == line["metric"] and not line["reduction"] + line["scale"]:
                names = ("params", "paper", "paper_value", "paper_spread", "paper_note")
                line |= {name: printed[name] for name in names}
        lines.append(line)
    return lines


def _printed(number: PaperNumber) -> dict[str, Any]:
    """Return a line without runs; † marks a method where only that distinguishes two rows."""
    mark = " †" if number.note.startswith("†") else ""
    return {
        "row": number.row,
        "unscaled": number.row,
        "block": block_of(number.row),
        "dataset": number.dataset,
        "model": number.model,
        "method": f"{number.method}{mark}",
        "params": number.params,
        "metric": number.metric,
        "paper": number.text,
        "paper_value": float(number.value),
        "paper_spread": float(number.spread or 0),
        "paper_note": number.note,
    }


def _judged(found: pd.DataFrame, baselines: Baselines) -> pd.DataFrame:
    """Add what each experiment must beat, whether its best epochs do, and its whole name."""
    known = [baselines.get(key) for key in zip(found["fingerprint"], found["metric"], strict=True)]
    known = [each if n else None for each, n in zip(known, found["n"], strict=True)]
    found["baseline"] = [str(each or "") for each in known]
    found["trained"] = [
        not each or not n or each.is_beaten_by(best)
        for each, n, best in zip(known, found["best_n"], found["best"], strict=True)
    ]
    notes = [
        [line.variant, line.fate, "" if line.trained else "did not train"]
        for line in found.itertuples()
    ]
    bracketed = [[f"[{note}]" for note in each if note] for each in notes]
    found["name"] = [" ".join([m, *n]) for m, n in zip(found["method"], bracketed, strict=True)]
    return found


def plain(name: str) -> str:
    """Return the letters and digits of a name in lower case, to compare spellings."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def short(digest: str) -> str:
    """Return the first digits of a fingerprint or hash."""
    return digest.rsplit(":", 1)[-1][:8] or "unknown"


def _order(line: Any, numbers: Sequence[PaperNumber]) -> tuple[object, ...]:
    def place(value: str, values: Sequence[str]) -> tuple[int, str]:
        return (values.index(value), "") if value in values else (len(values), value)

    leaves = [number.row.split("/")[-1] for number in numbers]
    leaf = line.row.split("/")[-1]
    return (
        place(line.block, [block_of(number.row) for number in numbers]),
        place(plain(line.dataset), [plain(number.dataset) for number in numbers]),
        leaves.index(leaf) if leaf in leaves else len(leaves),
        *(line.model, not leaf.endswith("implicit")),
        [float(p) if p[:1].isdigit() else p for p in re.split(r"(\d+\.?\d*)", leaf)],
        *(line.paper == "", line.variant),
    )


def _abbreviate(count: float) -> str:
    if pd.isna(count):
        return ""
    scaled, unit = (count / 1e3, "K") if count < 1e6 else (count / 1e6, "M")
    return f"{scaled:.0f}{unit}" if scaled >= 10 else f"{scaled:.1f}{unit}"


def kept(lines: pd.DataFrame, wanted: Callable[[Any], Any]) -> pd.DataFrame:
    """Return the experiments that are ``wanted``."""
    return lines[np.array([bool(wanted(line)) for line in lines.itertuples()], dtype=bool)]


def leaf_of(row: str) -> str:
    """Return a row without its scale and table."""
    return split_row(row)[1].partition("/")[2]
