"""Tables of the studies, from the records in this repository, changed where a test needs it."""

from dataclasses import replace

import pytest
from report.conftest import published, rows, study_table

from phantomgrad_suite.runs.records import Check, read_study, write_record

REDUCED = {"protocol": "reduced", "changes": ["7 of 9 samples", "x=1"]}


def test_checks_show_which_claims_hold(tmp_path):
    checks = [Check.above("up", 2.0, 1.0), Check.below("not finite", float("nan"), 1.0)]
    write_record(published("figure1/tanh", checks=checks), tmp_path / "r.json")
    table = study_table("figure1", read_study(tmp_path / "r.json"))
    assert table.sections[-1].frame.to_numpy().tolist() == [
        ["figure1/tanh", "up", "2", "1", "holds"],
        ["figure1/tanh", "not finite", "nan", "1", "DOES NOT HOLD"],
    ]


def test_hardware_duration_and_reduction_are_named():
    known = {
        "environment": {"processor": "a CPU", "threads": 1, "accelerator": "a GPU"},
        "seconds": {"total": 3.0},
        "checks": [],
    }
    gpu = published("table2/cpu", row="table2/cuda", config={"device": "cuda"}, **known, **REDUCED)
    table = study_table("table2", published("table2/cpu", **known), gpu)
    assert [section.title for section in table.sections] == [
        *("On a CPU, 1 thread", "On a CPU, 1 thread: measurements"),
        *("On a GPU", "On a GPU: measurements", "", "Measured on"),
    ]
    assert table.sections[-1].notes == (
        "table2/cpu (seed0): 3 s on a CPU, 1 thread.",
        "table2/cuda (seed0): 3 s on a GPU; reduced: 7 of 9 samples, x=1.",
    )


def test_figure4_has_the_medians_of_the_last_iteration(tmp_path):
    """A method that diverged has dashes."""
    record = published("figure4/linear")
    level = record.numbers["levels"][0]
    broyden, npg = level["methods"][:2]
    quantities = ("objective", "relative_error", "cosine", "l1_norm")
    for quantity in quantities:
        broyden[quantity][-1] = [float("inf")] * 5
    write_record(record, tmp_path / "r.json")
    first, second, *_ = (
        study_table("figure4", read_study(tmp_path / "r.json"))
        .sections[0]
        .frame.to_numpy()
        .tolist()
    )
    assert first[2:7] == ["Broyden", *"————"]
    medians = [float(npg[quantity][-1][2]) for quantity in quantities]
    assert second[2] == "NPG, λ = 0.5"
    assert list(map(float, second[3:7])) == pytest.approx(medians, rel=0.01)


def test_the_bench_of_gradients_counts_products_over_all_layers():
    row = {"name": "a", "cosine": 0.9, "norm_ratio": 1.0, "products": [2, 3], "seconds": 5.0}
    record = published("gradients/synthetic")
    numbers = {**record.numbers, "estimators": [{**row, "peak_bytes": 0}]}
    section, *_ = study_table("gradients", replace(record, numbers=numbers)).sections
    assert section.title == "Synthetic, tanh, L = 0.9"
    assert rows(section) == [
        {
            **{"Estimator": "a", "Cosine": "0.90000", "Norm ratio": "1.000", "Products": "5"},
            **{"Time (ms)": "5000.00", "Peak memory (MiB)": "0.00"},
        }
    ]
