"""Throughput: its table and bars, and its column in other tables, which is not taken for runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report.conftest import figures, study_table, texts

from phantomgrad_suite.report.table import State
from report import study_records as made

REDUCED: dict[str, Any] = {"protocol": "reduced", "changes": ["batch 4 of 16"]}
SPEEDS = """table9/toy_implicit,table9,Toy,IGNN,Implicit,38K,speed,1.0,,x,
table9/toy_upg_k5_d0.5,table9,Toy,IGNN,UPG,38K,speed,1.7,,x,
"""


@pytest.fixture
def printed(results: Any) -> Any:
    """Results in which the paper has speeds."""
    results.print_in_paper(SPEEDS)
    return results


# The table


def test_the_table_has_times_comparisons_and_evaluations() -> None:
    times, comparison, in_f = study_table("throughput", made.throughput()).sections[:3]
    assert times.title == "On a CPU, 1 thread"
    phases = ["100.0 [90.0, 110.0]", "60.0", "30.0", "10.0", "2.0", "3"]
    implicit, upg = "Toy, MDEQ: Implicit", "Toy, MDEQ: UPG A(5, 0.5)"
    assert texts(times) == [
        [implicit, "4 (64)", "40.0", *phases],
        [upg, "8 (64)", "80.0", *phases],
    ]
    assert texts(comparison) == [[upg, implicit, "2.00×", "1.25×", "3.50×"]]  # noqa: RUF001
    expected = ["50.0 (40.5)", "30.0 (20)", "15.0 (20.5)"]
    assert texts(in_f) == [
        [implicit, "18.5 of 19", "18.5 of 19", *expected],
        [upg, "18.5 of 19", "—", *expected],
    ]


def test_a_reduced_measurement_is_marked() -> None:
    table = study_table("throughput", made.throughput(**REDUCED))
    assert table.state == State.REDUCED
    assert table.sections[0].title == "On a CPU, 1 thread, reduced"
    assert table.sections[-1].notes[0].endswith("reduced: batch 4 of 16.")


def test_the_bars_stack_the_phases_of_a_sample() -> None:
    """Milliseconds of an image: 15, 7.5 and 2.5 at a batch of 4, half of that at 8."""
    table = study_table("throughput", made.throughput(), made.throughput("cuda"))
    first, second = figures(table)["throughput"].axes
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == (
        "a CPU, 1 thread",
        "a GPU",
    )
    widths = [patch.get_width() for patch in first.patches]
    assert widths == pytest.approx([15, 7.5, 2.5, 7.5, 3.75, 1.25])
    assert [patch.get_x() for patch in first.patches] == pytest.approx([0, 15, 22.5, 0, 7.5, 11.25])
    assert first.get_xlabel() == "milliseconds per image"
    assert [text.get_text().strip() for text in first.texts] == ["", "2.00×"]  # noqa: RUF001


# The column of other tables


def test_a_table_has_a_column_for_each_hardware(printed: Any) -> None:
    """Whether or not its rows were run; reduced ones say so in heading and note."""
    printed.write(made.throughput("cuda"))
    printed.write(made.throughput(**REDUCED))
    results = printed.rows("table9")
    ours = {h: [r[h] for r in results if r["Speed, paper"] != "—"] for h in results[0]}
    assert ours["Speed, step on a GPU"] == ["1.00×", "2.00×"]  # noqa: RUF001
    assert ours["Speed, step on a CPU, 1 thread, reduced"] == ["1.00×", "2.00×"]  # noqa: RUF001
    assert "Speed" not in ours
    text = printed.markdown("table9")
    assert text.count("measured on synthetic batches with random weights") == 2
    assert "not the paper's setting, reduced: batch 4 of 16." in text


def test_a_hardware_has_one_column_whatever_measured_it(printed: Any) -> None:
    """Vision and language rows of a table come from a study each."""
    both = made.throughput("cuda")
    for row in both.numbers["rows"]:
        alone = {**both.numbers, "rows": [{**row, "faster": {"step": 2.0}, "baseline": "table9/x"}]}
        printed.write(replace(both, row=f"throughput/{row['row'][7:]}", numbers=alone))
    results = printed.rows("table9")
    columns = [heading for heading in results[0] if heading.startswith("Speed, step")]
    assert columns == ["Speed, step on a GPU"]
    assert [r[columns[0]] for r in results if r["Speed, paper"] != "—"] == ["2.00×"] * 2  # noqa: RUF001
    assert printed.markdown("table9").count("measured on synthetic batches") == 1


def test_a_smaller_row_may_stand_for_one_of_the_table(printed: Any) -> None:
    """Its speed is in that one's line, and the column says that it is reduced."""
    record = made.throughput(table="small", **REDUCED)
    for row, (whole,) in zip(
        record.numbers["rows"], (["table9/toy_implicit"], ["table9/toy_upg_k5_d0.5"]), strict=True
    ):
        row["stands_for"] = whole
    printed.write(record)
    results = printed.rows("table9")
    ours = [r["Speed, step on a CPU, 1 thread, reduced"] for r in results]
    assert ours == ["1.00×", "2.00×"]  # noqa: RUF001


def test_conditions_of_a_measurement_are_noted() -> None:
    record = made.throughput()
    record.setting.update(whole_budgets=True, precision="bf16-mixed")
    record.numbers["rows"][1].update(row="table3/cifar10_upg", per_second=430.0)
    record.numbers["rows"][1]["label"]["dataset"] = "cifar10"
    section = study_table("throughput", record).sections[0]
    assert texts(section)[1][0].startswith("CIFAR-10, MDEQ: UPG")
    assert section.text == (
        "Seconds: CPU time, medians with quartiles. Solves spend their whole budgets, converged or "
        "not. Precision: bf16-mixed. 2 times the images/s of the release's log."
    )
    plain = study_table("throughput", made.throughput()).sections[0]
    assert plain.text == "Seconds: CPU time, medians with quartiles."


def test_other_tables_have_no_such_column(printed: Any) -> None:
    printed.write(made.throughput(table="table8"))
    assert not any(h.startswith("Speed, step") for h in printed.rows("table9")[0])


def test_a_record_of_another_version_is_one_line(printed: Any, capsys: Any) -> None:
    record = made.throughput()
    del record.numbers["rows"][0]["baseline"]
    printed.write(record)
    assert printed.report("table9") == 1
    error = capsys.readouterr().err
    folder = printed.path / "records" / "throughput"
    assert error.startswith(f"report: a record below {folder} lacks a value that its table needs")
    assert error.count("\n") == 1
