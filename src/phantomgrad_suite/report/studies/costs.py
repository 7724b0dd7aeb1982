"""Table 2, throughput and the bench against torchdeq: what gradients and steps cost."""

from collections.abc import Iterator, Mapping, Sequence

from phantomgrad_suite.report.catalogue import DATASETS, Entry
from phantomgrad_suite.report.document import DASH, Section, section
from phantomgrad_suite.report.studies.parts import (
    Numbers,
    Records,
    device_label,
    hardware_label,
    with_instance,
)

COSTS = {
    "seconds": ("Time", "ms", 1e3),
    "graph_bytes": ("Mem", "MiB", 2**-20),
    "peak_bytes": ("Peak Mem", "MiB", 2**-20),
}
"""The measurements of Table 2: title, unit, and scale to the unit."""
_PAPER_ORDERS = {
    "Implicit": ("O(K)", "O(1)", "O(k)"),
    "UPG": ("O(k)", "O(k)", "O(k)"),
    "NPG": ("O(k)", "O(1)", "O(1)"),
}
_STEP = ("step", "forward", "backward")


def complexity(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield, for each device, the paper's orders next to fitted ones, and all measurements."""
    for record in records:
        numbers, methods = record.numbers, record.numbers["methods"]
        where = f"On {with_instance(record, device_label(record), records)}"
        rows = [
            {
                "Method": method["name"],
                "Size": f"{method['variable']} = {size}",
                **{f"{t} ({u})": f"{method[q][i] * x:.2f}" for q, (t, u, x) in COSTS.items()},
            }
            for method in methods
            for i, size in enumerate(method["sizes"])
        ]
        state = numbers["state_bytes"] / 2**20
        text = entry.text["measured"].format(clock=numbers["clock"], state=state)
        yield section(where, [_orders(method) for method in methods])
        yield section(f"{where}: measurements", rows, words=2, text=text)


def _orders(method: Numbers) -> dict[str, str]:
    """Return the orders of a method and its slope, at both ends where the law is a parabola."""
    row = {"Method": method["name"]}
    printed = _PAPER_ORDERS.get(method["name"].split(",")[0], ("", "", ""))
    for paper, (quantity, (title, unit, scale)) in zip(printed, COSTS.items(), strict=True):
        fit = method["fits"][quantity]
        slope = f"{fit['slope'] * scale:.3g}"
        if len(fit["curve"]) == 3:
            _, linear, quadratic = fit["curve"]
            sizes = (method["sizes"][0], method["sizes"][-1])
            ends = [(linear + 2 * quadratic * size) * scale for size in sizes]
            slope = f"{ends[0]:.2g} to {ends[1]:.2g}"
        row |= {f"{title}, paper": paper, f"{title}, measured": fit["order"]}
        row |= {f"{title}, {unit} per k or K": slope, f"{title}, R²": f"{fit['r2']:.3f}"}
    return row


def throughput(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield, for each record, times and how many times faster, then evaluations of f."""
    for record in records:
        title = with_instance(record, hardware_label(record), records)
        where = f"On {title}, {record.row.split('/')[-1]}"
        rows, text = record.numbers["rows"], entry.text["clock"].format(**record.numbers)
        if record.setting.get("whole_budgets"):
            text += f" {entry.text['whole_budgets']}"
        names = row_names(rows)
        times = [{"Row": name, **_times(row)} for name, row in zip(names, rows, strict=True)]
        yield section(where, times, text=text)
        units = [{"Row": n, **_in_evaluations(row)} for n, row in zip(names, rows, strict=True)]
        text = entry.text["in_f"]
        yield section(f"{where}: in evaluations of f", units, text=text)


def _times(row: Numbers) -> dict[str, str]:
    low, _, high = (1e3 * quartile for quartile in row["seconds"]["step"]["quartiles"])
    medians = {p: f"{1e3 * row['seconds'][p]['median']:.1f}" for p in (*_STEP, "update", "f")}
    medians["step"] += f" [{low:.1f}, {high:.1f}]"
    faster = {phase: f"{factor:.2f}×" for phase, factor in row["faster"].items()}  # noqa: RUF001
    return {
        "Batch": f"{row['batch']} ({row['effective_batch']})",
        "Samples/s": f"{row['per_second']:.1f}",
        **{f"{phase} (ms)": median for phase, median in medians.items()},
        **{f"{phase} faster": faster.get(phase, "") for phase in _STEP},
        "Memory (MiB)": f"{row['peak_bytes'] / 2**20:,.0f}",
    }


def _in_evaluations(row: Numbers) -> dict[str, str]:
    cells = {}
    for heading, which in (("f / solve", "forward"), ("Adjoint / solve", "adjoint")):
        spent = row["evaluations"].get(which)
        cells[heading] = f"{spent['mean']:.4g} of {spent['budget']:.4g}" if spent else DASH
    for phase in _STEP:
        cells[phase.capitalize()] = f"{row['in_f'][phase]:.1f}"
    return cells


def row_names(rows: Sequence[Numbers]) -> list[str]:
    """Return data set, model and method of measured rows, and the budget where these are equal."""
    names = [f"{_model(row['label'])}: {row['label']['method']}" for row in rows]
    budgets = [row["evaluations"]["forward"]["budget"] for row in rows]
    return [
        f"{name}, {budget:.4g} evaluations" if names.count(name) > 1 else name
        for name, budget in zip(names, budgets, strict=True)
    ]


def against_torchdeq(entry: Entry, records: Records) -> Iterator[Section]:
    """Yield, for each record, solves and training steps of both sides."""
    for record in records:
        numbers = record.numbers
        where = f"On {with_instance(record, hardware_label(record), records)}"
        solves = [
            {"Solver": each["solver"], "State": " x ".join(map(str, each["shape"]))}
            | _both(each, "total", "ms")
            | _both(each, "outside f", "ms")
            | _both(each, "memory", "MiB")
            for each in numbers["solves"]
        ]
        steps = [
            {"Model": f"{_model(each['label'])}, {each['batch']} {each['unit']}"}
            | {"Gradient": each["label"]["method"]}
            | _both(each, "step", "ms")
            | {f"{q}, ratio": _less(each, q) for q in ("forward", "backward")}
            | {"ratio if our solvers cost nothing": _less(each, "free")}
            | _both(each, "memory", "MiB")
            for each in numbers["steps"]
        ]
        text = entry.text["clock"].format(**numbers)
        yield section(f"{where}: solves", solves, words=2, text=text)
        yield section(f"{where}: training steps", steps, words=2)


def _both(case: Numbers, quantity: str, unit: str) -> dict[str, str]:
    """Return what we take, what torchdeq takes, and how many times less we take."""
    cells = {}
    for side in ("ours", "torchdeq"):
        bytes_, seconds = case[side]["peak_bytes"], case[side]["seconds"]
        amount = bytes_ / 2**20 if unit == "MiB" else 1e3 * seconds[quantity]["median"]
        cells[f"{quantity}, {side} ({unit})"] = f"{amount:,.1f}"
    return cells | {f"{quantity}, ratio": _less(case, quantity)}


def _less(case: Numbers, quantity: str) -> str:
    name = "peak_bytes" if quantity == "memory" else quantity
    return f"{case['times_less'][name]:.2f}×"  # noqa: RUF001


def _model(label: Mapping[str, str]) -> str:
    return f"{DATASETS.get(label['dataset'], label['dataset'])}, {label['model']}"
