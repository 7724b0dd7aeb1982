"""Throughput: its page and bars, and the column it gives to a table; never taken for a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report.test_studies import rows

from phantomgrad_suite.report.studies import throughput
from phantomgrad_suite.report.style import styled
from phantomgrad_suite.runs.records import write_record
from report import study_records as made

REDUCED: dict[str, Any] = {"protocol": "reduced", "changes": ["batch 4 of 16"]}
SPEEDS = """table9/toy_implicit,table9,Toy,IGNN,Implicit,38K,speed,1.0,,x,
table9/toy_upg_k5_d0.5,table9,Toy,IGNN,UPG,38K,speed,1.7,,x,
"""


@pytest.fixture
def printed(results: Any) -> Any:
    """Results in which the paper has speeds."""
    with (results.path / "paper.csv").open("a", encoding="utf-8") as file:
        file.write(SPEEDS)
    return results


def add(results: Any, record: Any) -> None:
    write_record(record, results.path / "records" / record.row / f"{record.instance}.json")


# The page -------------------------------------------------------------------------------------


def test_the_page_has_costs_comparisons_and_evaluations() -> None:
    text = throughput.table([made.throughput()])
    assert text.startswith(f"# {throughput.TITLE}\n\nSpeed was measured on synthetic batches")
    assert "## On a CPU, 1 thread\n" in text
    lines = [line for line in rows(text) if line[0] != "Row"]
    assert lines == [
        [
            *("Toy, MDEQ: Implicit", "4 (64)", "40.0", "100.0 [90.0, 110.0]"),
            *("60.0", "30.0", "10.0", "2.0", "3"),
        ],
        [
            *("Toy, MDEQ: UPG A(5, 0.5)", "8 (64)", "80.0", "100.0 [90.0, 110.0]"),
            *("60.0", "30.0", "10.0", "2.0", "3"),
        ],
        ["Toy, MDEQ: UPG A(5, 0.5)", "Toy, MDEQ: Implicit", "2.00×", "1.25×", "3.50×"],  # noqa: RUF001
        [
            *("Toy, MDEQ: Implicit", "18.5 of 19", "18.5 of 19"),
            *("50.0 (40.5)", "30.0 (20)", "15.0 (20.5)"),
        ],
        [
            *("Toy, MDEQ: UPG A(5, 0.5)", "18.5 of 19", "—"),
            *("50.0 (40.5)", "30.0 (20)", "15.0 (20.5)"),
        ],
    ]


def test_a_reduced_measurement_says_so_in_its_heading() -> None:
    text = throughput.table([made.throughput(**REDUCED)])
    assert "## On a CPU, 1 thread, reduced\n" in text
    assert "reduced: batch 4 of 16." in text


def test_the_bars_stack_the_phases_of_a_sample() -> None:
    """Milliseconds of an image: 15, 7.5 and 2.5 at a batch of 4, half of that at 8."""
    with styled():
        drawn = throughput.figures([made.throughput(), made.throughput("cuda")])
    (figure,) = drawn.values()
    first, second = figure.axes
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == (
        "a CPU, 1 thread",
        "a GPU",
    )
    widths = [patch.get_width() for patch in first.patches]
    assert widths == pytest.approx([15, 7.5, 2.5, 7.5, 3.75, 1.25])
    assert [patch.get_x() for patch in first.patches] == pytest.approx([0, 15, 22.5, 0, 7.5, 11.25])
    assert first.get_xlabel() == "milliseconds per image"
    assert [text.get_text().strip() for text in first.texts] == ["", "2.00×"]  # noqa: RUF001


# The column of a table ------------------------------------------------------------------------


def test_a_table_has_a_column_for_each_hardware(printed: Any) -> None:
    """Whether or not its rows were run; reduced ones say so in heading and note."""
    add(printed, made.throughput("cuda"))
    add(printed, made.throughput(**REDUCED))
    results = printed.rows("table9")
    ours = {h: [r[h] for r in results if r["Speed, paper"] != "—"] for h in results[0]}
    assert ours["Speed, step on a GPU"] == ["1.00×", "2.00×"]  # noqa: RUF001
    assert ours["Speed, step on a CPU, 1 thread, reduced"] == ["1.00×", "2.00×"]  # noqa: RUF001
    assert "Speed" not in ours
    text = printed.markdown("table9")
    assert text.count("measured on synthetic batches with random weights") == 2
    assert "not the paper's setting, reduced: batch 4 of 16 (throughput.md has" in text


def test_a_hardware_has_one_column_whatever_measured_it(printed: Any) -> None:
    """Vision and language rows of a table come from a study each."""
    both = made.throughput("cuda")
    for row in both.numbers["rows"]:
        alone = {**both.numbers, "rows": [{**row, "faster": {"step": 2.0}, "baseline": "table9/x"}]}
        add(printed, replace(both, row=f"throughput/{row['row'][7:]}", numbers=alone))
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
    add(printed, record)
    results = printed.rows("table9")
    ours = [r["Speed, step on a CPU, 1 thread, reduced"] for r in results]
    assert ours == ["1.00×", "2.00×"]  # noqa: RUF001


def test_conditions_of_a_measurement_are_said() -> None:
    record = made.throughput()
    record.setting.update(whole_budgets=True, precision="bf16-mixed")
    record.numbers["rows"][1].update(row="table3/cifar10_upg", per_second=430.0)
    record.numbers["rows"][1]["label"]["dataset"] = "cifar10"
    text = throughput.table([record])
    assert "| CIFAR-10, MDEQ: UPG" in text
    assert "Solves spend their whole budgets, whatever they find." in text
    assert "Precision: bf16-mixed. 2 times the images/s of the release's log." in text
    plain = throughput.table([made.throughput()])
    assert "budgets" not in plain
    assert "Precision" not in plain


def test_other_tables_have_no_such_column(printed: Any) -> None:
    add(printed, made.throughput(table="table8"))
    assert not any(h.startswith("Speed, step") for h in printed.rows("table9")[0])


def test_steps_on_noise_do_not_count_as_runs(printed: Any) -> None:
    """The page goes on saying that the row has not been run."""
    from phantomgrad_suite.report.catalogue import Artifact
    from phantomgrad_suite.report.prose import read_document
    from phantomgrad_suite.report.status import MISSING, status_of

    add(printed, made.throughput())
    assert printed.report("table9") == 0
    page = printed.path / "tables" / "table9.md"
    assert "2.00×" in page.read_text()  # noqa: RUF001
    document = read_document(page, printed.path)
    assert status_of(Artifact("table9", "T", "t", "c"), [document], drawn=False).state == MISSING


def test_a_record_of_another_version_is_one_line(printed: Any, capsys: Any) -> None:
    record = made.throughput()
    del record.numbers["rows"][0]["baseline"]
    add(printed, record)
    assert printed.report("table9") == 1
    error = capsys.readouterr().err
    assert error.startswith("report: a record of throughput lacks what its table shows")
    assert error.count("\n") == 1
