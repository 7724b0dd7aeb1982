"""Tables of the studies, from the records in this repository, changed where a test needs it."""

import pytest
from report.conftest import points, published, rows, study_table

from phantomgrad_suite.report.document import State
from phantomgrad_suite.report.figures import plots_of
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
    assert (table.state, table.missing) == (State.MADE, "1 check does not hold")


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


@pytest.mark.parametrize(
    ("changes", "state", "missing"),
    [
        ([], State.MISSING, ""),
        ([{}], State.MADE, ""),
        ([{}, REDUCED], State.PARTLY, "1 of 2 studies in full"),
        ([REDUCED], State.REDUCED, "0 of 1 studies in full"),
    ],
)
def test_state_counts_full_studies(changes, state, missing):
    table = study_table("figure4", *(published("figure4/tanh", **change) for change in changes))
    assert (table.state, table.missing) == (state, missing)


def test_a_missing_theorem_is_named():
    table = study_table("theorems", published("theorems/descent"), published("theorems/series"))
    assert (table.state, table.missing) == (State.PARTLY, "not Theorem 3")


def test_the_full_record_of_a_theorem_is_shown_and_all_are_checked():
    full = published("theorems/descent")
    other = published("theorems/descent", setting={**full.setting, "samples": 3}, **REDUCED)
    table = study_table("theorems", other, full)
    assert f"of {full.setting['samples']} samples" in table.sections[0].text
    assert len(rows(table.sections[-1])) == 2 * len(full.checks)


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


def test_a_single_seed_shows_no_deviation():
    several = published("theorems/sgd")
    numbers = several.numbers | {
        "gradients": [case | {"level": case["level"][:1]} for case in several.numbers["gradients"]]
    }
    for record, marks in ((several, True), (published("theorems/sgd", numbers=numbers), False)):
        (section,) = (s for s in study_table("theorems", record).sections if "SGD" in s.title)
        assert all(("±" in row["Left side"]) == marks for row in rows(section))


def test_stars_of_the_bench_of_gradients_mark_what_no_other_one_beats():
    """By products b is beaten by a, and c ties with d; by time, d is beaten by c."""
    known = {"a": (2, 0.9, 5.0), "b": (3, 0.8, 4.0), "c": (4, 0.95, 6.0), "d": (4, 0.95, 7.0)}
    rows_of_record = [
        {"name": n, "cosine": c, "norm_ratio": 1.0, "products": [p], "seconds": s, "peak_bytes": 0}
        for n, (p, c, s) in known.items()
    ]
    record = published("gradients/synthetic")
    numbers = {**record.numbers, "estimators": rows_of_record}
    table = study_table("gradients", published("gradients/synthetic", numbers=numbers))
    assert [
        (row["Estimator"], row["Products"], row["Time (ms)"]) for row in rows(table.sections[0])
    ] == [
        ("a", "2*", "5000.00*"),
        ("b", "3", "4000.00*"),
        ("c", "4*", "6000.00*"),
        ("d", "4*", "7000.00"),
    ]
    assert table.sections[0].title == "Synthetic, tanh, L = 0.9"
    found = points(plots_of(table)[0])
    panel = "Synthetic, tanh, L = 0.9\n1 - cosine"
    expected = {
        "products": ([2, 4, 4], pytest.approx([0.1, 0.05, 0.05])),
        "milliseconds": ([4000, 5000, 6000], pytest.approx([0.2, 0.1, 0.05])),
    }
    assert {cost: found[panel, cost, "Pareto front"] for cost in expected} == expected


def test_baselines_are_listed_by_data_set():
    record = published("baselines/cox2")
    scores = record.numbers["scores"]
    table = study_table("baselines", record)
    assert [row[:3] for row in table.sections[0].frame.to_numpy().tolist()] == [
        ["COX2", name, "accuracy (%) ↑"] for name in scores
    ]
    assert [row[3] for row in table.sections[0].frame.to_numpy().tolist()] == [
        f"{100 * s:.1f}" for s in scores.values()
    ]


def test_throughput_names_its_reduction_and_conditions():
    table = study_table("throughput", published("throughput/cpu", setting={"whole_budgets": True}))
    assert table.state == State.REDUCED
    assert table.sections[0].title.endswith(", reduced, cpu")
    assert "reduced: batches of one core" in table.sections[-1].notes[0]
    assert "a solve spends its budget, unless rounding ends it before" in table.sections[0].text


def test_the_bench_against_torchdeq_has_ratios_of_medians_over_rounds():
    seconds = {q: {"median": 0.5} for q in ("step", "forward", "backward", "free")}
    less = {"step": 2.5, "forward": 3, "backward": 2, "free": 4, "peak_bytes": 1.5}
    case = {
        **{side: {"seconds": seconds, "peak_bytes": 2**20} for side in ("ours", "torchdeq")},
        **{"times_less": less, "batch": 8, "unit": "images"},
        "label": {"dataset": "D", "model": "M", "method": "G"},
    }
    numbers = {"clock": "CPU time", "torchdeq": "0.1.0", "solves": [], "steps": [case]}
    (row,) = rows(study_table("torchdeq", published("torchdeq/cpu", numbers=numbers)).sections[1])
    assert (row["Model"], row["Gradient"]) == ("D, M, 8 images", "G")
    assert (row["step, ours (ms)"], row["step, ratio"]) == ("500.0", "2.50×")  # noqa: RUF001
    assert (row["memory, ours (MiB)"], row["memory, ratio"]) == ("1.0", "1.50×")  # noqa: RUF001
