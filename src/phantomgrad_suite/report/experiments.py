"""The experiments of a table: a line for each group of runs, and for each number of the paper.

A group has one row, protocol, configuration and metric, and the same data. Its scores are those of
its runs that did not diverge; ``n`` counts all.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from phantomgrad_suite.report.baselines import Baselines
from phantomgrad_suite.report.catalogue import DATASETS
from phantomgrad_suite.report.frame import block_of
from phantomgrad_suite.report.inputs import PaperNumber
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.metrics import Metric, metric_of

SCORES = ("best", "last", "selected")
"""At the best test epoch of each run, the last one, and that selected on validation data."""
_MEANS = ["evaluations", "adjoint_evaluations", "parameters", "step_in_f"]
# The columns of the frame. Where a line has no value, words are empty, counts 0, numbers NaN.
_WORDS = ["row", "unscaled", "scale", "block", "dataset", "key", "model", "method", "params"]
_WORDS += ["metric", "mode", "fingerprint", "config_hash", "reduction", "scaled"]
_WORDS += ["variant", "fate", "family", "form", "searched", "direction", "paper", "paper_note"]
_COUNTS = ["n", "lost", "steps", "objective_n", "step_in_f_n", *(f"{s}_n" for s in SCORES)]
_NUMBERS = ["experiment", "damping", "objective", "peak_bytes"]
_NUMBERS += [*_MEANS, *SCORES, *(f"{s}_std" for s in SCORES)]
_FAMILIES = ["implicit", "UPG", "NPG", "one step", "BPTT"]  # in the order of the tables


def experiments_of(
    runs: pd.DataFrame, numbers: Sequence[PaperNumber], baselines: Baselines
) -> pd.DataFrame:
    """Return the experiments in the order of the paper, then others; reduced ones come last."""
    printed = {number.row: _printed(number) for number in numbers}
    lines = (
        [_with_paper(x, printed) for x in _measured(runs).to_dict("records")] if len(runs) else []
    )
    compared = {line["row"] for line in lines if line["paper"]}
    lines += [line for row, line in printed.items() if row not in compared]
    found = pd.DataFrame(lines, columns=[*_WORDS, *_COUNTS, *_NUMBERS])
    found[_WORDS] = found[_WORDS].astype(object).fillna("")
    found[_COUNTS] = found[_COUNTS].astype(float).fillna(0).astype(int)
    found[_NUMBERS] = found[_NUMBERS].astype(float)
    spelling = {plain(number.dataset): number.dataset for number in numbers}
    found["dataset"] = [spelling.get(plain(name), name) for name in found["dataset"]]
    return _sorted(_judged(found, baselines), [*printed.values()])


def _measured(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a line for each experiment in the frame of runs, with means and deviations."""
    groups = runs.groupby("experiment", sort=False)
    found = runs.drop_duplicates("experiment").set_index("experiment").copy()
    finished = runs[~runs["diverged"]].groupby("experiment", sort=False)
    for score in (*SCORES, "objective"):
        values = finished[score].agg(["mean", "std", "count"])
        found[[score, f"{score}_std", f"{score}_n"]] = values
    found[_MEANS] = finished[_MEANS].mean()
    found["step_in_f_n"] = finished["step_in_f"].count()
    found["peak_bytes"] = finished["peak_bytes"].max()
    found["n"], found["lost"] = groups.size(), groups["diverged"].sum()
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


def _variants(found: pd.DataFrame) -> pd.Series:
    """Return how experiments differ from the full protocol and from others on their data set.

    Data are named where rows of one data set differ in them, a configuration where one row has
    several.
    """
    place, parts = ["block", "dataset", "reduction"], found[["reduction"]].copy()
    for name, column, of in (
        ("data", "fingerprint", place),
        ("configuration", "config_hash", [*place, "row", "fingerprint"]),
    ):
        several = found.groupby(of)[column].transform("nunique") > 1
        parts[name] = (f"{name} " + found[column].map(short)).where(several, "")
    return parts.agg(lambda each: "; ".join(filter(None, each)), axis=1)


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
        "paper_note": number.note,
    }


def _with_paper(line: dict[str, Any], printed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return an experiment with the paper's names, and its number where it may be compared."""
    line |= {"params": _abbreviate(line["parameters"]), "paper": ""}
    number = printed.get(line["unscaled"])
    if number is None:
        return line
    same = plain(number["dataset"]) == plain(line["dataset"])
    same = same and number["metric"] == line["metric"] and not line["reduction"] + line["scale"]
    names = ("params", "paper", "paper_note") if same else ()
    return line | {name: number[name] for name in ("model", "method", *names)}


def _judged(found: pd.DataFrame, baselines: Baselines) -> pd.DataFrame:
    """Add what each experiment must beat, whether its best epochs do, and its whole name.

    How all experiments on the data set of a block differ from the full protocol is ``shared``, and
    in none of their names; how one differs from the others is its ``own_variant``.
    """
    rows = [*found.itertuples()]
    known = [baselines.get((x.fingerprint, x.metric)) if x.n else None for x in rows]
    trained = [
        not each or not line.best_n or each.is_beaten_by(line.best)
        for each, line in zip(known, rows, strict=True)
    ]
    alike = found.groupby(["block", "dataset"])["variant"].transform("nunique") == 1
    shared, own = found["variant"].where(alike, ""), found["variant"].mask(alike, "")
    notes = pd.DataFrame({"variant": own, "fate": found["fate"]})
    notes["untrained"] = np.where(trained, "", "no better than the baseline")
    bracketed = [" ".join(f"[{note}]" for note in each if note) for each in notes.to_numpy()]
    names = (found["method"] + " " + bracketed).str.rstrip()
    baseline = [str(x or "") for x in known]
    added = {"baseline": baseline, "trained": trained, "name": names}
    return found.assign(**added, shared=shared, own_variant=own)


def _sorted(found: pd.DataFrame, printed: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return experiments in the order of the paper; others by model, family, k and λ."""

    def rank(name: str, values: Sequence[Any], known: Sequence[Any]) -> pd.Series:
        first = {value: i for i, value in reversed([*enumerate(known)])}
        return pd.Series([first.get(value, len(known)) for value in values], name=name, dtype=int)

    rows = [line["row"] for line in printed]
    keys = [
        rank("a", found["block"], [line["block"] for line in printed]),
        found["block"],
        rank("b", found["dataset"].map(plain), [plain(line["dataset"]) for line in printed]),
        found["dataset"].map(plain),
        rank("c", found["unscaled"], rows),
        found["model"],
        rank("d", found["family"], _FAMILIES),
        *(found["steps"], found["damping"].fillna(0.0)),
        found["row"].map(_natural),
        *(found["paper"] == "", found["variant"]),
    ]
    order = sorted(found.index, key=[*zip(*keys, strict=True)].__getitem__)
    return found.loc[order].reset_index(drop=True)


def _natural(row: str) -> list[tuple[float, str]]:
    """Return a key by which numbers in names are in their order."""
    parts = re.split(r"(\d+\.?\d*)", row)
    return [(float(part), "") if part[:1].isdigit() else (-1.0, part) for part in parts]


def plain(name: str) -> str:
    """Return the letters and digits of a name in lower case, to compare spellings."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def short(digest: str) -> str:
    """Return the first digits of a fingerprint or hash."""
    return digest.rsplit(":", 1)[-1][:8] or "unknown"


def _abbreviate(count: float) -> str:
    if pd.isna(count):
        return ""
    scaled, unit = (count / 1e3, "K") if count < 1e6 else (count / 1e6, "M")
    return f"{scaled:.0f}{unit}" if scaled >= 10 else f"{scaled:.1f}{unit}"


def leaf_of(row: str) -> str:
    """Return a row without its scale and table."""
    return split_row(row)[1].partition("/")[2]
