"""Tables and figures of Figure 1, Figure 4 and Table 2: the numbers of the records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from report.conftest import figures, rows, study_table, texts

from phantomgrad_suite.report import markdown
from phantomgrad_suite.report.figures.style import LINES
from phantomgrad_suite.report.table import State, Table
from phantomgrad_suite.runs.records import Check, StudyRecord, read_study, write_record
from report import study_records as made

FORMS = ["NPG, λ = 0.5", "NPG, λ = 1.0", "UPG, λ = 0.5", "UPG, λ = 1.0"]


def titles(table: Table) -> list[str]:
    return [section.title for section in table.sections]


# All studies


def test_checks_show_which_claims_hold() -> None:
    checks = [Check.above("up", 2.0, 1.0), Check.below("down", 3.0, 1.0)]
    table = study_table("figure1", made.precision(checks=checks))
    assert texts(table.sections[-1]) == [
        ["figure1/tanh", "up", "2", "1", "holds"],
        ["figure1/tanh", "down", "3", "1", "DOES NOT HOLD"],
    ]
    assert (table.state, table.missing) == (State.MADE, "1 check does not hold")


def test_a_check_without_a_finite_value_is_shown(tmp_path: Any) -> None:
    checks = [Check.below("known", float("nan"), 1.0)]
    write_record(made.precision(checks=checks), tmp_path / "r.json")
    table = study_table("figure1", read_study(tmp_path / "r.json"))
    assert texts(table.sections[-1]) == [["figure1/tanh", "known", "nan", "1", "DOES NOT HOLD"]]


def test_notes_name_hardware_duration_and_reduction() -> None:
    reduced = made.complexity("cuda", protocol="reduced", changes=["7 of 9 samples", "x=1"])
    table = study_table("table2", made.complexity(checks=[]), replace(reduced, checks=[]))
    assert table.sections[-1].title == "Measured on"
    assert table.sections[-1].notes == (
        "table2/cpu (seed0): 3 s on a CPU, 1 thread.",
        "table2/cuda (seed0): 3 s on a GPU; reduced: 7 of 9 samples, x=1.",
    )


@pytest.mark.parametrize(
    ("protocols", "state", "missing"),
    [
        ([], State.MISSING, ""),
        (["full"], State.MADE, ""),
        (["full", "reduced"], State.PARTLY, "1 of 2 studies in full"),
        (["reduced"], State.REDUCED, "0 of 1 studies in full"),
    ],
)
def test_state_counts_full_studies(protocols: list[str], state: State, missing: str) -> None:
    names = ("tanh", "relu")[: len(protocols)]
    records = [made.precision(n, protocol=p) for n, p in zip(names, protocols, strict=True)]
    table = study_table("figure1", *records)
    assert (table.state, table.missing) == (state, missing)


@pytest.mark.parametrize(
    ("key", "record"),
    [
        ("figure1", made.precision()),
        ("figure4", made.dynamics()),
        ("table2", made.complexity()),
        ("throughput", made.throughput()),
    ],
)
def test_markdown_has_title_caption_and_notes(key: str, record: StudyRecord) -> None:
    table = study_table(key, record)
    text = markdown.render(table)
    assert text.startswith(f"# {table.title}\n\n{table.entry.caption}\n\n## ")
    assert text.endswith(f"- {record.row} (seed0): 3 s on a CPU, 1 thread.\n")
    assert all(f"\n- {note}\n" in text for note in table.entry.notes)


# Figure 1


def test_figure1_has_the_means_of_states_and_rows() -> None:
    section = study_table("figure1", made.precision()).sections[0]
    first, _, last = rows(section)
    assert list(first) == ["k", *FORMS, *(f"norm, {form}" for form in FORMS)]
    assert [row["k"] for row in rows(section)] == ["1", "2", "5"]
    cosines = ["0.6600 (0.5600)", "0.7100 (0.6100)", "0.7100 (0.6100)", "0.7600 (0.6600)"]
    assert list(first.values())[1:5] == cosines
    assert list(last.values())[5:] == ["0.250", "0.500", "0.250", "0.500"]


def test_figure1_describes_the_precision_of_its_reference() -> None:
    record = made.precision(protocol="reduced", changes=["1 of 9 samples"])
    assert study_table("figure1", record).sections[0].text == (
        "N = 32, D = 128, L = 0.9, 12,345 samples. Reduced: 1 of 9 samples. After 77 iterations "
        "the two exact gradients agree to a cosine of 0.9999912 or better (the paper: above "
        "0.9999), and the relative error of h* is at most 0.26."
    )


def test_figure1_panels() -> None:
    """A row for each map, a column for each form and λ, the median of the rows in each."""
    table = study_table("figure1", made.precision("relu"), made.precision())
    panels = figures(table)["figure1"].axes
    names = [rf"{form}, $\lambda = {d}$" for form in ("NPG", "UPG") for d in (0.5, 1.0)]
    assert [axes.get_title(loc="left") for axes in panels] == names * 2
    notes = [axes.texts[0].get_text() for axes in panels if axes.texts]
    assert [note.splitlines()[0] for note in notes] == ["F: tanh", "F: relu"]
    assert "n = 12,345" in notes[0]
    npg = panels[0]
    assert [label.get_text() for label in panels[4].get_xticklabels()] == ["1", "2", "5"]
    medians = list(npg.lines[0].get_ydata())
    assert medians == pytest.approx([0.56, 0.57, 0.60])
    assert len(npg.collections) == 2 * 3  # rows and states, for each k
    bottom, top = npg.collections[3].get_datalim(npg.transData).intervaly
    assert (bottom, top) == pytest.approx((0.66 - 0.0049, 0.66 + 0.0049))  # 1 % to 99 %


# Figure 4


def test_figure4_has_the_medians_of_the_last_iteration() -> None:
    section = study_table("figure4", made.dynamics()).sections[0]
    assert section.title == "F: tanh"
    assert section.text.startswith("After 3 iterations of Broyden's method, or at k = 3; medians")
    lines = texts(section)
    methods = ["Broyden", "NPG, λ = 0.5", "UPG, λ = 0.5", "NPG, λ = 1.0", "UPG, λ = 1.0"]
    assert [line[2] for line in lines] == methods * 2
    assert [line[:2] for line in lines[4:6]] == [["0.9", "12.5"], ["0.999", "1.23e+03"]]
    assert lines[0][3:] == ["1.00e-03", "5.00e-04", "0.9000", "0.003", "7.25"]
    assert lines[1][3:] == ["5.00e-03", "2.50e-03", "0.8000", "0.015", "7.25"]


def test_figure4_accepts_values_that_are_not_finite(tmp_path: Any) -> None:
    """A method that diverged: a dash in the table, a gap in the figure."""
    record = made.dynamics()
    for quantity in ("objective", "relative_error", "cosine", "l1_norm"):
        record.numbers["levels"][0]["methods"][0][quantity][-1] = [float("inf")] * 5
    write_record(record, tmp_path / "r.json")
    table = study_table("figure4", read_study(tmp_path / "r.json"))
    assert texts(table.sections[0])[0][3:] == ["—", "—", "—", "—", "7.25"]
    axes = figures(table)["figure4_tanh"].axes[0]
    assert axes.lines[0].get_ydata()[:3].tolist() == [1.0, 0.1, 0.01]


def test_figure4_panels() -> None:
    """A figure for each map; a row for each constant, a column for each quantity."""
    found = figures(study_table("figure4", made.dynamics(), made.dynamics("linear")))
    assert list(found) == ["figure4_tanh", "figure4_linear"]
    panels = found["figure4_tanh"].axes
    assert len(panels) == 2 * 4
    assert [axes.get_yscale() for axes in panels[:4]] == ["log"] * 4
    assert panels[4].get_ylabel() == "$L_h = 0.999$\nκ = 1,230"
    broyden, npg = panels[0].lines[:2]
    assert list(broyden.get_xdata()) == [0, 1, 2, 3]  # from its start
    assert list(broyden.get_ydata()) == pytest.approx([1, 0.1, 0.01, 0.001])
    assert list(npg.get_xdata()) == [1, 2, 3]  # from k = 1
    assert list(npg.get_ydata()) == pytest.approx([0.5, 0.05, 0.005])
    assert [broyden.get_color(), npg.get_color()] == [LINES[0][0], LINES[1][0]]
    assert list(panels[3].lines[-1].get_ydata()) == [7.25, 7.25]  # that of the exact gradient
    (legend,) = found["figure4_tanh"].legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "Broyden",
        *(rf"{form}, $\lambda = {d}$" for d in (0.5, 1.0) for form in ("NPG", "UPG")),
        r"exact, $\|g\|_1$",
    ]


# Table 2


def test_table2_has_the_paper_next_to_the_measured_orders() -> None:
    """As printed: time O(K), O(k), O(k); memory O(1), O(k), O(1); peak O(k), O(k), O(1)."""
    found = rows(study_table("table2", made.complexity()).sections[0])
    shown = {
        row["Method"]: [row[f"{q}, {who}"] for q in ("Time", "Mem", "Peak Mem") for who in WHO]
        for row in found
    }
    assert shown == {
        "Implicit, fixed point": ["O(K)", "O(K)", "O(1)", "O(1)", "O(k)", "O(K)"],
        "Implicit, Broyden": ["O(K)", "O(K)", "O(1)", "O(1)", "O(k)", "O(K)"],
        "UPG": ["O(k)", "O(k)", "O(k)", "O(k)", "O(k)", "O(k)"],
        "NPG": ["O(k)", "O(k)", "O(1)", "O(1)", "O(1)", "O(1)"],
    }
    slopes = ("Time, ms per k or K", "Mem, MiB per k or K", "Peak Mem, MiB per k or K")
    assert [found[2][heading] for heading in slopes] == ["2", "1", "2"]
    assert found[2]["Time, R²"] == "1.000"


WHO = ("paper", "measured")


def test_table2_has_every_measurement() -> None:
    section = study_table("table2", made.complexity()).sections[1]
    assert section.text == "Medians (wall clock). One state takes 0.5 MiB."
    headings = [column.heading for column in section.columns]
    assert headings == ["Method", "Size", "Time (ms)", "Mem (MiB)", "Peak Mem (MiB)"]
    lines = texts(section)
    assert lines[0] == ["Implicit, fixed point", "K = 10", "20.00", "1.50", "20.00"]
    assert lines[8] == ["UPG", "k = 5", "10.00", "5.00", "10.00"]
    assert lines[11] == ["NPG", "k = 5", "10.00", "1.50", "2.00"]
    assert len(lines) == 4 * 3


def test_table2_keeps_devices_apart() -> None:
    table = study_table("table2", made.complexity(), made.complexity("cuda"))
    assert titles(table)[::2][:2] == ["On a CPU, 1 thread", "On a GPU"]
    assert len(figures(table)["table2"].axes) == 2 * 3


def test_table2_panels() -> None:
    """Points as measured, in the unit of the axis, and the fitted line from end to end."""
    axes = figures(study_table("table2", made.complexity()))["table2"].axes
    shown = [(panel.get_title(loc="left"), panel.get_ylabel()) for panel in axes]
    assert shown == [("Time", "ms"), ("Mem", "MiB"), ("Peak Mem", "MiB")]
    time, memory, _ = axes
    assert len(time.lines) == 4 * 2
    points, line = memory.lines[4:6]
    assert points.get_color() == line.get_color() == LINES[2][0]
    assert list(points.get_xdata()) == [1, 2, 5]
    assert list(points.get_ydata()) == pytest.approx([1, 2, 5])
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (1, 5)
    assert list(line.get_ydata()) == pytest.approx(list(line.get_xdata()))
    assert list(time.lines[0].get_ydata()) == pytest.approx([20, 40, 60])


# The command


@pytest.mark.parametrize("study", ["figure1", "figure4", "table2"])
def test_a_run_among_studies_is_named(results: Any, capsys: Any, study: str) -> None:
    path = results.add(f"{study}/tanh", "seed0", [0.8])
    assert results.report(study) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"report: {path} is no complete record (missing: ['checks'")
    assert error.count("\n") == 1
    assert not (results.path / "tables").exists()
