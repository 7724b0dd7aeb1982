"""Tables of the studies, from the records in this repository, changed where a test needs it."""

from report.conftest import published, study_table

from phantomgrad_suite.runs.records import Check, read_any, write_record

REDUCED = {"protocol": "reduced", "changes": ["7 of 9 samples", "x=1"]}


def test_checks_show_which_claims_hold(tmp_path):
    checks = [Check.above("up", 2.0, 1.0), Check.below("not finite", float("nan"), 1.0)]
    write_record(published("figure1/tanh", checks=checks), tmp_path / "r.json")
    table = study_table("figure1", read_any(tmp_path / "r.json"))
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
