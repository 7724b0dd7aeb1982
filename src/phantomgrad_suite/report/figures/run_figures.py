"""The figures of runs: scores, curves by epoch and by cost, and what was measured on the way."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from phantomgrad_suite.report.catalogue import BLOCKS, FIGURES
from phantomgrad_suite.report.document import Table
from phantomgrad_suite.report.experiments import kept, leaf_of, metric_of_line
from phantomgrad_suite.report.figures.style import Dots, Lines, Plot, curve, file_name, once
from phantomgrad_suite.report.frame import by_epoch, curves_of, estimators_of, evaluations
from phantomgrad_suite.report.results import RADII, STEP, block_titles, measured_along, records_of
from phantomgrad_suite.runs.identity import SCALES
from phantomgrad_suite.runs.records import Record

# The scores that are drawn, and their labels.
_DOTS = {
    "paper_value": "paper",
    "best": "best epoch of each run",
    "last": "last epoch",
    "selected": "epoch selected on validation data",
}
_RADII = dict(
    zip(RADII, (r"$\partial F / \partial h$", r"$\partial F_\lambda / \partial h$"), strict=True)
)
_MANY = 6  # curves in a panel
_CONFOUNDED = "swapped"  # rows that differ in more than the gradient are compared with others only
_THOUSANDS = "thousand evaluations of f"
_SECONDS, _UNIT = "seconds/step_cpu", "seconds/f_cpu"  # sums by epoch; of one f, not on a GPU
_BAND = "mean over runs; band: ± one standard error"


def of_runs(table: Table) -> Iterator[Plot]:
    """Yield all scores, the curves of each block, their costs, and what training measured."""
    lines = table.experiments
    for scale in ("", *SCALES):
        yield from _scores(table, lines[lines["scale"] == scale])
    for block, members in lines.groupby("block", sort=False):
        if not block.endswith(_CONFOUNDED):
            yield from _by_epoch(table, block, members)
    yield from along_training(table)


def _scores(table: Table, lines: pd.DataFrame) -> Iterator[Plot]:
    """Yield the scores of all rows: a panel for each data set and block with runs of ours."""
    ours = lines.groupby(["block", "dataset"])["n"].transform("sum") > 0
    titles, found = block_titles(table.experiments), list[dict[str, Any]]()
    for line in lines[ours].itertuples():
        metric = metric_of_line(line)
        most = 100.0 if metric.unit == "%" else np.inf
        place = {
            "name": label_of(line, table.experiments),
            "family": line.family,
            "row": f"{line.dataset}: {metric.heading}",
            "column": titles[line.block],
        }
        for score, label in _DOTS.items():
            printed = score == "paper_value"
            spread = getattr(line, "paper_spread" if printed else f"{score}_std", np.nan)
            x, spread = np.array([getattr(line, score, np.nan), spread or np.nan], dtype=float) * (
                1 if printed else metric.scale
            )
            band = {"low": x - spread, "high": np.minimum(x + spread, most)}
            found.append({"x": x, "label": label, **place, **band})
    points = pd.DataFrame(
        found, columns=["x", "low", "high", "label", "name", "family", "row", "column"]
    )
    points = points.dropna(subset="x")
    points = points.sort_values(
        "label", key=lambda c: c.map([*_DOTS.values()].index), kind="stable"
    )
    if len(points):
        name = file_name(table.key, lines["scale"].iloc[0])
        title = f"{table.entry.label}: {finding(lines) or table.entry.title}"
        yield Dots(name, FIGURES["dots"], title, points, "whiskers: ± one standard deviation")


def finding(lines: pd.DataFrame) -> str:
    """Return, by data set, the last scores of implicit rows and those of phantom gradients."""
    confounded = lines["block"].str.endswith(_CONFOUNDED)
    shown = lines[(lines["reduction"] == "") & lines["last"].notna() & ~confounded]
    sentences = []
    for dataset, group in shown.groupby("dataset", sort=False):
        metric = metric_of_line(group.iloc[0])
        phantom = group["family"].isin(["UPG", "NPG", "one step"])
        sides = group.loc[group["family"] == "implicit", "last"], group.loc[phantom, "last"]
        if all(map(len, sides)):
            implicit, others = (_span(side, metric) for side in sides)
            sentences.append(f"{dataset}, implicit {implicit}, phantom gradients {others}")
    return "; ".join(sentences) + (" at the last epoch" if sentences else "")


def _span(values: pd.Series, metric: Any) -> str:
    low, high = metric.format(values.min()), metric.format(values.max())
    return low if low == high else f"{low} to {high}"


def title_of(table: Table, line: Any, found: str = "") -> str:
    """Return the title of a figure of one data set, with what was found."""
    place = [table.entry.label, line.dataset, BLOCKS.get(line.scale or "-")]
    return ", ".join(filter(None, place)) + (f": {found}" if found else "")


def label_of(line: Any, lines: pd.DataFrame) -> str:
    """Return the name of an experiment, with its model where ``lines`` have several."""
    return f"{line.model}, {line.name}" if lines["model"].nunique() > 1 else line.name


def _by_epoch(table: Table, block: str, members: pd.DataFrame) -> Iterator[Plot]:
    """Yield test metric and training loss by epoch, a row of panels for each data set.

    Where a data set has an implicit row, the metric is also drawn as the difference to it. Reduced
    runs are drawn only if there are no others, and of many rows only those that the catalogue names
    for the figures by cost.
    """
    found = kept(members, lambda line: _tests(line, table))
    full = found[found["reduction"] == ""]
    found = full if len(full) else found
    found = found.assign(main=[leaf_of(row) in table.entry.by_cost for row in found["row"]])
    by_data = found.groupby("dataset")["main"]
    crowded = (by_data.transform("size") > _MANY) & by_data.transform("any")
    shown = found[~crowded | found["main"]]
    curves = [part for line in shown.itertuples() for part in _epochs(table, line, shown)]
    if curves:
        points = pd.concat(curves, ignore_index=True)
        note = [_BAND] if points["low"].notna().any() else []
        note += ["only the main rows are drawn"] if len(shown) < len(found) else []
        block_title = block_titles(table.experiments)[block]
        place = ", ".join(filter(None, [table.entry.label, block_title]))
        title = f"{place}: {finding(shown) or 'by epoch'}"
        name = file_name(table.key, block, "curves")
        yield Lines(name, FIGURES["curves"], title, points, "epoch", "; ".join(note))


def _tests(line: Any, table: Table) -> list[list[float]]:
    return curves_of(records_of(line, table.runs), metric_of_line(line).curve)


def _epochs(table: Table, line: Any, lines: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the curves of an experiment by epoch."""
    metric, label = metric_of_line(line), label_of(line, lines)
    records, row = records_of(line, table.runs), f"{line.dataset}\n{metric.heading}"
    columns = {"test": (metric.curve, metric.scale), "training loss": ("train/loss", 1.0)}
    for column, (name, scale) in columns.items():
        if not (ours := curves_of(records, name)):
            continue
        yield mean_curve(label, ours, (row, column), scale, family=line.family)
        if column == "test" and (pairs := _minus_implicit(table, line, lines)):
            panel = row, "test, minus implicit"
            yield mean_curve(label, pairs, panel, metric.scale, family=line.family)


def _minus_implicit(table: Table, line: Any, lines: pd.DataFrame) -> list[Any]:
    """Return the differences to the implicit run of the same seed and fold, by epoch."""
    others = lines[(lines["family"] == "implicit") & (lines["dataset"] == line.dataset)]
    if others.empty:
        return []
    implicit, name = records_of(others.iloc[0], table.runs), metric_of_line(line).curve
    theirs = {run.instance: run.curves[name] for run in implicit if run.curves.get(name)}
    differences = []
    for run in records_of(line, table.runs):
        if (ours := run.curves.get(name)) and run.instance in theirs:
            pair = by_epoch([ours, theirs[run.instance]]).dropna(how="all")
            differences.append((pair[0] - pair[1]).tolist())
    return differences


def mean_curve(
    label: str,
    runs: Sequence[Any],
    panel: tuple[str, str],
    scale: float = 1.0,
    x: Any = None,
    family: str = "",
) -> pd.DataFrame:
    """Return the mean over runs as far as all go, by default by epoch, with its standard error.

    Epochs without any value are left out: evaluations may be rarer than epochs.
    """
    values = scale * by_epoch(runs)[: min(map(len, runs))].replace([np.inf, -np.inf], np.nan)
    mean, error = values.mean(axis=1), values.std(axis=1) / np.sqrt(len(runs))
    x = pd.Series(range(1, len(mean) + 1) if x is None else x[: len(mean)], dtype=float)
    band = {"low": mean - error, "high": mean + error} if len(runs) > 1 else {}
    return curve(label, x, mean, *panel, family=family, **band).dropna(subset="y")


def by_cost(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the test metric by processor time and by evaluations of f.

    The unit of time is an evaluation of f in the same run: seconds depend on the machine, and on
    what else it does. The catalogue names the rows. Changed runs are left out, and so are runs of
    unknown cost: they did not time f, or kept no weights, which count steps.
    """
    lines = table.experiments
    named = kept(lines, lambda line: leaf_of(line.row) in table.entry.by_cost)
    timed = kept(named[named["reduction"] == ""], lambda line: _timed(line, table))
    for (block, dataset), group in timed.groupby(["block", "dataset"], sort=False):
        curves, costs = [], dict[tuple[str, str], float]()
        for line in group.itertuples():
            records, metric, label = (
                _timed(line, table),
                metric_of_line(line),
                label_of(line, group),
            )
            tests, row = curves_of(records, metric.curve), f"{dataset}\n{metric.heading}"
            spent = {
                f"processor time in {_THOUSANDS}": [processor_time(run) for run in records],
                _THOUSANDS: [evaluations(run) / 1e3 for run in records],
            }
            for column, each in spent.items():
                x = np.mean([cost[: min(map(len, tests))] for cost in each], axis=0)
                costs[column, line.family] = min(x[-1], costs.get((column, line.family), np.inf))
                curves.append(mean_curve(label, tests, (row, column), metric.scale, x, line.family))
        first, points = next(group.itertuples()), pd.concat(curves, ignore_index=True)
        name = file_name(table.key, block, first.key.lower(), "cost")
        title = title_of(table, first, _cost_finding(costs))
        note = _BAND if points["low"].notna().any() else ""
        yield Lines(name, FIGURES["cost"], title, points, note=note, log="x")


def _timed(line: Any, table: Table) -> list[Record]:
    return [
        run
        for run in records_of(line, table.runs)
        if "last" in run.weights and {_SECONDS, _UNIT} <= run.curves.keys()
    ]


def _cost_finding(costs: dict[tuple[str, str], float]) -> str:
    """Return the shares of implicit training's time and evaluations that the cheapest takes."""
    totals = pd.Series(costs).unstack()
    if "implicit" not in totals or totals.shape[1] < 2:
        return ""
    shares = totals.drop(columns="implicit").div(totals["implicit"], axis=0)
    family = shares.loc[_THOUSANDS].idxmin()
    time, work = (f"{100 * share:.0f} %" for share in shares[family])
    return f"{family} takes {time} of implicit's processor time, {work} of its evaluations"


def processor_time(record: Record) -> np.ndarray:
    """Return the time of all steps up to each epoch, in that of a thousand evaluations of f."""
    steps, f = (np.array(record.curves[name], dtype=float) for name in (_SECONDS, _UNIT))
    return np.cumsum(steps / (1e3 * np.nanmedian(f)))


def along_training(table: Table) -> Iterator[Plot]:
    """Yield, for each data set, the cosines along exact training, and the radii of all rows."""
    found = measured_along(table.experiments, table.runs)
    found = found.sort_values("scale", ascending=False, kind="stable")
    for (block, dataset), group in found.groupby(["block", "dataset"], sort=False):
        exact = group[group["form"] == ""]
        drawn = {
            "cosines": [
                c for x in (exact if len(exact) else group).itertuples() for c in _cosines(x, table)
            ],
            "radius": [c for x in group.itertuples() for c in _radii(x, table)],
        }
        first = next(group.itertuples())
        # None of cosines, for example, if no estimator was measured.
        for kind, curves in ((kind, curves) for kind, curves in drawn.items() if curves):
            points = once(pd.concat(curves, ignore_index=True))
            title = title_of(table, first, _ALONG[kind](points))
            name = file_name(table.key, block, first.key.lower(), kind)
            note = _BAND if points["low"].notna().any() else ""
            caption = FIGURES[kind].format(dataset=dataset)
            yield Lines(name, caption, title, points, "training step", note, share="all")


def _least_cosine(points: pd.DataFrame) -> str:
    means = points.groupby("label")["y"].mean()
    return f"mean cosines are at least {means.min():.2f} ({means.idxmin()})"


def _last_radii(points: pd.DataFrame) -> str:
    of_f = points[points["column"] == _RADII["precision/spectral_radius/F"]]
    last = of_f.drop_duplicates("label", keep="last")["y"]
    return f"the spectral radius of F ends at {last.min():.2f} to {last.max():.2f}"


_ALONG = {"cosines": _least_cosine, "radius": _last_radii}


def _cosines(line: Any, table: Table) -> Iterator[pd.DataFrame]:
    """Yield the cosines of all estimators, those of phantom gradients in a panel of their own."""
    records = records_of(line, table.runs)
    x, row = curves_of(records, STEP)[0], f"cosine along training\n{line.method}"
    for name, (form, label) in estimators_of(records[0]).items():
        if runs := curves_of(records, f"precision/{name}/cosine"):
            family = "one step" if label == "A(1, 1.0)" else form.replace("I", "i")
            column = "implicit, truncated" if form == "Implicit" else "phantom gradients"
            label = label if form == "Implicit" else f"{form} {label}"
            yield mean_curve(label, runs, (row, column), x=x, family=family)


def _radii(line: Any, table: Table) -> Iterator[pd.DataFrame]:
    records = records_of(line, table.runs)
    x = curves_of(records, STEP)[0]
    for name, column in _RADII.items():
        if runs := curves_of(records, name):
            yield mean_curve(line.name, runs, ("spectral radius", column), x=x, family=line.family)
