"""Throughput: its table, and its column in other tables, which is not taken for runs."""

import pytest
from report.conftest import published, rows, study_table

from phantomgrad_suite.report.table import State

SPEEDS = """table9/toy_implicit,table9,Toy,IGNN,Implicit,38K,speed,1.0,,x,
table9/toy_upg_k5_d0.5,table9,Toy,IGNN,UPG,38K,speed,1.7,,x,
"""
IMPLICIT, UPG = "table9/toy_implicit", "table9/toy_upg_k5_d0.5"


@pytest.fixture
def printed(results):
    """Results in which the paper has speeds."""
    results.print_in_paper(SPEEDS)
    return results


def measured(device, *rows, **changes):
    """Return a record of rows, by default of the two of ``table9``."""
    default = [{"row": IMPLICIT, "baseline": None}, {"row": UPG, "baseline": IMPLICIT}]
    numbers = [{"faster": {"step": 2.0}, **row} for row in rows or default]
    known = {
        "row": f"throughput/{device}",
        "environment": {"processor": "a CPU", "threads": 1, "accelerator": "a GPU"},
        "config": {"device": device},
        "protocol": "full",
    }
    return published("throughput/cpu", **{**known, "numbers": {"rows": numbers}, **changes})


def test_reduction_and_conditions_are_noted():
    record = published("throughput/cpu", setting={"whole_budgets": True})
    table = study_table("throughput", record)
    assert table.state == State.REDUCED
    assert table.sections[0].title.endswith(", reduced, cpu")
    assert "reduced: batches of one core" in table.sections[-1].notes[0]
    assert table.sections[0].text == (
        "Seconds: CPU time, medians with quartiles. "
        "Tolerances are zero: a solve spends its budget, unless rounding ends it before."
    )


def test_a_table_has_a_column_for_each_hardware(printed):
    """It has one even if its rows were not run; the heading says whether the rows were reduced."""
    printed.write(measured("cuda"))
    printed.write(measured("cpu", protocol="reduced"))
    results = printed.rows("table9")
    assert [row["Speed, paper"] for row in results] == ["1.0×", "1.7×"]  # noqa: RUF001
    for heading in ("Speed, step on a GPU", "Speed, step on a CPU, 1 thread, reduced"):
        assert [row[heading] for row in results] == ["1.00×", "2.00×"]  # noqa: RUF001
    text = printed.markdown("table9")
    assert text.count("measured on synthetic batches with random weights") == 2


def test_a_hardware_has_one_column_whatever_measured_it(printed):
    """Vision and language rows of a table come from different studies."""
    for name, row in (("a", IMPLICIT), ("b", UPG)):
        alone = {"row": row, "baseline": "table9/x"}
        printed.write(measured("cuda", alone, row=f"throughput/{name}"))
    results = printed.rows("table9")
    assert [h for h in results[0] if h.startswith("Speed, step")] == ["Speed, step on a GPU"]
    assert [row["Speed, step on a GPU"] for row in results] == ["2.00×"] * 2  # noqa: RUF001


def test_the_bench_against_torchdeq_has_ratios_of_medians_over_rounds():
    seconds = {q: {"median": 0.5} for q in ("step", "forward", "backward", "free")}
    less = {"step": 2.5, "forward": 3, "backward": 2, "free": 4, "peak_bytes": 1.5}
    case = {
        **{side: {"seconds": seconds, "peak_bytes": 2**20} for side in ("ours", "torchdeq")},
        **{
            "times_less": less,
            "batch": 8,
            "unit": "images",
            "label": {"dataset": "D", "model": "M", "method": "G"},
        },
    }
    numbers = {"clock": "CPU time", "torchdeq": "0.1.0", "solves": [], "steps": [case]}
    record = published("torchdeq/cpu", numbers=numbers)
    (row,) = rows(study_table("torchdeq", record).sections[1])
    assert (row["Model"], row["Gradient"]) == ("D, M, 8 images", "G")
    assert (row["step, ours (ms)"], row["step, ratio"]) == ("500.0", "2.50×")  # noqa: RUF001
    assert (row["memory, ours (MiB)"], row["memory, ratio"]) == ("1.0", "1.50×")  # noqa: RUF001
