"""Records of studies, written by hand: every number in them can be found again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from phantomgrad_suite.runs.records import Check, StudyRecord
from phantomgrad_suite.studies.complexity import fit

STEPS, DAMPINGS = (1, 2, 5), (0.5, 1.0)


def study(
    row: str, setting: dict[str, Any], numbers: dict[str, Any], **changes: Any
) -> StudyRecord:
    """Return the record of a study."""
    content = StudyRecord(
        row=row,
        instance="seed0",
        protocol="full",
        changes=[],
        setting=setting,
        numbers=numbers,
        checks=[Check.below(f"a claim of {row}", 0.25, 1)],
        seconds={"total": 3.0, "cpu": 2.0},
        environment={"processor": "a CPU", "threads": 1, "accelerator": "a GPU"},
        config={"device": "cpu"},
        config_hash="cccccccc22",
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:00:03+00:00",
    )
    return replace(content, **changes)


def spread(mean: float) -> dict[str, Any]:
    """Return a distribution over 101 values around ``mean``."""
    return {
        "n": 101,
        "mean": mean,
        "std": 0.01,
        "percentiles": [mean + (i - 50) / 1e4 for i in range(101)],
    }


def precision(nonlinearity: str = "tanh", **changes: Any) -> StudyRecord:
    """Return a record of Figure 1: the cosine of a state is 0.6 + k/100 + λ/10, of a row less."""
    estimates = [
        {
            "form": form,
            "steps": k,
            "damping": d,
            "states": spread((0.6 if form == "NPG" else 0.65) + k / 100 + d / 10),
            "rows": spread((0.5 if form == "NPG" else 0.55) + k / 100 + d / 10),
            "norm_ratio": spread(k * d / 10),
        }
        for form in ("NPG", "UPG")
        for k in STEPS
        for d in DAMPINGS
    ]
    agreement = {**spread(0.5), "percentiles": [0.9999912, *[1.0] * 100]}
    exact = {"agreement": agreement, "residual": spread(0.25)}
    setting = {
        "nonlinearity": nonlinearity,
        "lipschitz": 0.9,
        "size": 128,
        "rows": 32,
        "samples": 12345,
        "iterations": 77,
    }
    numbers = {"exact": exact, "estimates": estimates}
    return study(f"figure1/{nonlinearity}", setting, numbers, **changes)


def dynamics(nonlinearity: str = "tanh", **changes: Any) -> StudyRecord:
    """Return a record of Figure 4, with medians that shrink tenfold by iteration."""

    def method(name: str, damping: float | None, points: int, scale: float) -> dict[str, Any]:
        path = [[scale * q * 10.0**-i for q in (0.5, 0.75, 1, 1.5, 2)] for i in range(points)]
        cosines = [[0.5, 0.55, 0.6 + i / 10, 0.95, 1.0] for i in range(points)]
        return {
            "name": name,
            "damping": damping,
            "objective": path,
            "relative_error": [[x / 2 for x in step] for step in path],
            "cosine": cosines,
            "l1_norm": [[x * 3 for x in step] for step in path],
        }

    levels = [
        {
            "lipschitz": lipschitz,
            "residual": 1e-6,
            "condition": condition,
            "l1_norm": [1.0, 2.0, 7.25, 8.0, 9.0],
            "methods": [
                method("Broyden", None, 4, 1.0),
                *(method(name, d, 3, d) for d in DAMPINGS for name in ("NPG", "UPG")),
            ],
        }
        for lipschitz, condition in ((0.9, 12.5), (0.999, 1234.5))
    ]
    setting = {"nonlinearity": nonlinearity, "iterations": 3, "samples": 50}
    numbers = {"levels": levels, "shares": [0.05, 0.25, 0.5, 0.75, 0.95]}
    return study(f"figure4/{nonlinearity}", setting, numbers, **changes)


def complexity(device: str = "cpu", **changes: Any) -> StudyRecord:
    """Return a record of Table 2: times of 2 ms per k or K, and the memory that is expected."""
    methods = []
    for name, variable, sizes in (
        ("Implicit, fixed point", "K", [10, 20, 30]),
        ("Implicit, Broyden", "K", [10, 20, 30]),
        ("UPG", "k", [1, 2, 5]),
        ("NPG", "k", [1, 2, 5]),
    ):
        values = {
            "seconds": [0.002 * size for size in sizes],
            "graph_bytes": [2**20 * (size if name == "UPG" else 1.5) for size in sizes],
            "peak_bytes": [2**21 * (1 if name == "NPG" else size) for size in sizes],
        }
        fits = {quantity: fit(sizes, v, variable) for quantity, v in values.items()}
        methods.append({"name": name, "variable": variable, "sizes": sizes, **values, "fits": fits})
    numbers = {"methods": methods, "state_bytes": 2**19, "clock": "wall clock"}
    return study(
        f"table2/{device}", {"batch": 64}, numbers, **{"config": {"device": device}, **changes}
    )


def throughput(device: str = "cpu", table: str = "table9", **changes: Any) -> StudyRecord:
    """Return a record of two rows: UPG at twice the batch, in the same 100 ms a step."""

    def spread(median: float) -> dict[str, Any]:
        return {"median": median, "quartiles": [median * 0.9, median, median * 1.1]}

    def row(name: str, method: str, batch: int, baseline: str | None) -> dict[str, Any]:
        faster = {"step": 2.0, "forward": 1.25, "backward": 3.5} if baseline else {}
        solved = {"mean": 18.5, "budget": 19.0}
        return {
            "row": name,
            "label": {"dataset": "Toy", "model": "MDEQ", "method": method},
            "parameters": 1000,
            "batch": batch,
            "own_batch": 16,
            "effective_batch": 64,
            "unit": "images",
            "seconds": {
                "step": spread(0.1),
                "forward": spread(0.06),
                "backward": spread(0.03),
                "update": spread(0.01),
                "f": spread(0.002),
            },
            "per_second": batch / 0.1,
            "in_f": {"step": 50.0, "forward": 30.0, "backward": 15.0, "update": 5.0},
            "evaluations": {"forward": solved} | ({} if baseline else {"adjoint": solved}),
            "counted": {"step": 40.5, "forward": 20.0, "backward": 20.5},
            "baseline": baseline,
            "faster": faster,
            "peak_bytes": 3 * 2**20,
        }

    implicit = f"{table}/toy_implicit"
    rows = [
        row(implicit, "Implicit", 4, None),
        row(f"{table}/toy_upg_k5_d0.5", "UPG A(5, 0.5)", 8, implicit),
    ]
    numbers = {"clock": "CPU time", "rows": rows}
    options = {"checks": [], "config": {"device": device}, **changes}
    return study(f"throughput/{device}", {"repeats": 3}, numbers, **options)
