"""Pages and figures of Figure 1, Figure 4 and Table 2: the numbers of the records, no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from matplotlib.figure import Figure

from phantomgrad_suite.report.studies import complexity, dynamics, page, precision
from phantomgrad_suite.report.style import LINES, styled
from phantomgrad_suite.runs.records import Check, StudyRecord, read_study, write_record
from report import study_records as made


def rows(text: str) -> list[list[str]]:
    """The cells of every line of every table, headings included."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in lines
        if not set(line) <= set("|-: ")
    ]


def drawn(figures: dict[str, Figure], name: str) -> Figure:
    assert list(figures) == [name]
    return figures[name]


# What all pages share -------------------------------------------------------------------------


def test_checks_tell_what_holds_and_what_does_not() -> None:
    checks = [Check.above("up", 2.0, 1.0), Check.below("down", 3.0, 1.0)]
    assert rows(page.checks([made.precision(checks=checks)]))[1:] == [
        ["figure1/tanh", "up", "2", "1", "holds"],
        ["figure1/tanh", "down", "3", "1", "DOES NOT HOLD"],
    ]
    assert page.checks([made.precision(checks=[])]) == ""


def test_a_check_without_a_finite_value_is_shown(tmp_path: Any) -> None:
    """As it is read from a file: JSON has no word for it."""
    checks = [Check.below("known", float("nan"), 1.0)]
    write_record(made.precision(checks=checks), tmp_path / "r.json")
    shown = page.checks([read_study(tmp_path / "r.json")])
    assert rows(shown)[1] == ["figure1/tanh", "known", "nan", "1", "DOES NOT HOLD"]


def test_provenance_names_hardware_time_and_what_is_reduced() -> None:
    cpu, cuda = made.complexity(), made.complexity("cuda", changes=["7 of 9 samples", "x=1"])
    assert page.provenance([cpu, cuda]).splitlines() == [
        "- `table2/cpu` (seed0): 3 s on a CPU, 1 thread.",
        "- `table2/cuda` (seed0): 3 s on a GPU; reduced: 7 of 9 samples, x=1.",
    ]


def test_a_number_that_was_not_finite_is_a_dash() -> None:
    assert page.number(1 / 3, ".2f") == "0.33"
    assert page.number(None, ".2f") == "—"


@pytest.mark.parametrize(
    ("report", "record"),
    [(precision, made.precision()), (dynamics, made.dynamics()), (complexity, made.complexity())],
)
def test_every_page_has_its_title_checks_and_provenance(report: Any, record: StudyRecord) -> None:
    text = report.table([record])
    assert text.startswith(f"# {report.TITLE}\n\n")
    assert f"| a claim of {record.row} " in text
    assert f"- `{record.row}` (seed0): 3 s on a CPU, 1 thread." in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


# Figure 1 -------------------------------------------------------------------------------------


def test_figure1_table_has_the_means_of_states_and_rows() -> None:
    headings, *lines = rows(precision.table([made.precision(checks=[])]))
    forms = ["NPG, λ = 0.5", "NPG, λ = 1.0", "UPG, λ = 0.5", "UPG, λ = 1.0"]
    assert headings == ["k", *forms, *(f"norm, {form}" for form in forms)]
    assert [line[0] for line in lines] == ["1", "2", "5"]
    assert lines[0][1:5] == [
        "0.6600 (0.5600)",
        "0.7100 (0.6100)",
        "0.7100 (0.6100)",
        "0.7600 (0.6600)",
    ]
    assert lines[2][5:] == ["0.250", "0.500", "0.250", "0.500"]


def test_figure1_says_how_exact_the_reference_is() -> None:
    """Beside what the paper says of its own."""
    text = precision.table([made.precision()])
    assert "N = 32, D = 128, L = 0.9, 12,345 samples." in text
    assert "agree to a cosine of 0.9999912 or better (the paper: above 0.9999)" in text
    assert "After 77 iterations" in text
    assert "the relative error of h* is at most 0.26." in text


def test_figure1_has_tanh_first_and_every_map_once() -> None:
    records = [made.precision(name) for name in ("linear", "relu", "tanh")]
    text = precision.table(records)
    parts = [line for line in text.splitlines() if line.startswith("## F:")]
    assert parts == ["## F: tanh", "## F: relu", "## F: linear"]


def test_figure1_panels() -> None:
    """A row for each map, a column for each form and λ, the median of the rows in each."""
    with styled():
        figure = drawn(precision.figures([made.precision("relu"), made.precision()]), "figure1")
    panels = figure.axes
    titles = [rf"{form}, $\lambda = {d}$" for form in ("NPG", "UPG") for d in (0.5, 1.0)]
    assert [axes.get_title(loc="left") for axes in panels] == titles * 2
    notes = [axes.texts[0].get_text() for axes in panels if axes.texts]
    assert [note.splitlines()[0] for note in notes] == ["F: tanh", "F: relu"]
    assert "n = 12,345" in notes[0]
    npg = panels[0]
    assert [label.get_text() for label in panels[4].get_xticklabels()] == ["1", "2", "5"]
    medians = [float(line.get_ydata()[0]) for line in npg.lines]
    assert medians == pytest.approx([0.56, 0.57, 0.60])
    assert len(npg.collections) == 2 * 3  # rows and states, for each k
    bottom, top = npg.collections[1].get_datalim(npg.transData).intervaly
    assert (bottom, top) == pytest.approx((0.66 - 0.0049, 0.66 + 0.0049))  # 1 % to 99 %


# Figure 4 -------------------------------------------------------------------------------------


def test_figure4_table_has_the_medians_at_the_end() -> None:
    text = dynamics.table([made.dynamics(checks=[])])
    assert "## F: tanh\n\nAfter 3 iterations of Broyden's method, or at k = 3; medians" in text
    _, *lines = rows(text)
    assert [line[2] for line in lines] == [
        *("Broyden", "NPG, λ = 0.5", "UPG, λ = 0.5", "NPG, λ = 1.0", "UPG, λ = 1.0")
    ] * 2
    assert [line[:2] for line in lines[4:6]] == [["0.9", "12.5"], ["0.999", "1.23e+03"]]
    assert lines[0][3:] == ["1.00e-03", "5.00e-04", "0.9000", "0.003", "7.25"]
    assert lines[1][3:] == ["5.00e-03", "2.50e-03", "0.8000", "0.015", "7.25"]


def test_figure4_survives_what_was_not_finite(tmp_path: Any) -> None:
    """A method that diverged: a dash in the table, a gap in the figure."""
    record = made.dynamics()
    for quantity in ("objective", "relative_error", "cosine", "l1_norm"):
        record.numbers["levels"][0]["methods"][0][quantity][-1] = [float("inf")] * 5
    write_record(record, tmp_path / "r.json")
    read = read_study(tmp_path / "r.json")
    assert rows(dynamics.table([read]))[1][3:] == ["—", "—", "—", "—", "7.25"]
    with styled():
        figure = drawn(dynamics.figures([read]), "figure4_tanh")
    assert figure.axes[0].lines[0].get_ydata()[:3].tolist() == [1.0, 0.1, 0.01]


def test_figure4_panels() -> None:
    """A figure for each map; a row for each constant, a column for each quantity."""
    with styled():
        found = dynamics.figures([made.dynamics(), made.dynamics("linear")])
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


# Table 2 --------------------------------------------------------------------------------------


def test_table2_has_the_entries_of_the_paper_beside_the_measured_orders() -> None:
    """As printed: time O(K), O(k), O(k); memory O(1), O(k), O(1); peak O(k), O(k), O(1)."""
    record = made.complexity(checks=[])
    headings, *lines = rows(complexity.table([record]).split("Medians")[0])
    assert headings[1:5] == ["Time, paper", "Time, measured", "ms per k or K", "R²"]
    entries = [[line[0], *line[1::4]] for line in lines]
    assert entries == [
        ["Implicit, fixed point", "O(K)", "O(1)", "O(k)"],
        ["Implicit, Broyden", "O(K)", "O(1)", "O(k)"],
        ["UPG", "O(k)", "O(k)", "O(k)"],
        ["NPG", "O(k)", "O(1)", "O(1)"],
    ]
    measured = [line[2::4] for line in lines]
    assert measured == [
        ["O(K)", "O(1)", "O(K)"],
        ["O(K)", "O(1)", "O(K)"],
        ["O(k)", "O(k)", "O(k)"],
        ["O(k)", "O(1)", "O(1)"],
    ]
    assert lines[2][3::4] == ["2", "1", "2"]  # ms, MiB and MiB per k
    assert lines[2][4::4] == ["1.000"] * 3


def test_table2_has_every_measurement() -> None:
    text = complexity.table([made.complexity(checks=[])])
    assert "Medians (wall clock); one state has 0.5 MiB." in text
    headings, *lines = rows(text.split("Medians")[1])
    assert headings == ["Method", "Size", "Time (ms)", "Mem (MiB)", "Peak Mem (MiB)"]
    assert lines[0] == ["Implicit, fixed point", "K = 10", "20.00", "1.50", "20.00"]
    assert lines[8] == ["UPG", "k = 5", "10.00", "5.00", "10.00"]
    assert lines[11] == ["NPG", "k = 5", "10.00", "1.50", "2.00"]
    assert len(lines) == 4 * 3


def test_table2_keeps_devices_apart() -> None:
    text = complexity.table([made.complexity(), made.complexity("cuda")])
    parts = [line for line in text.splitlines() if line.startswith("## On")]
    assert parts == ["## On a CPU, 1 thread", "## On a GPU"]
    with styled():
        figure = drawn(complexity.figures([made.complexity(), made.complexity("cuda")]), "table2")
    assert len(figure.axes) == 2 * 3


def test_table2_panels() -> None:
    """Points as measured, in the unit of the axis, and the fitted line from end to end."""
    with styled():
        figure = drawn(complexity.figures([made.complexity()]), "table2")
    assert [(a.get_title(loc="left"), a.get_ylabel()) for a in figure.axes] == [
        ("Time", "ms"),
        ("Mem", "MiB"),
        ("Peak Mem", "MiB"),
    ]
    time, memory, _ = figure.axes
    assert len(time.lines) == 4 * 2
    points, line = memory.lines[4:6]
    assert points.get_color() == line.get_color() == LINES[2][0]
    assert list(points.get_xdata()) == [1, 2, 5]
    assert list(points.get_ydata()) == pytest.approx([1, 2, 5])
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (1, 5)
    assert list(line.get_ydata()) == pytest.approx(list(line.get_xdata()))
    assert list(time.lines[0].get_ydata()) == pytest.approx([20, 40, 60])


# The command ----------------------------------------------------------------------------------


def add(results: Any, record: StudyRecord) -> Any:
    path = results.path / "records" / record.row / f"{record.instance}.json"
    write_record(record, path)
    return path


def test_command_writes_page_and_figures_and_again_the_same(results: Any, capsys: Any) -> None:
    add(results, made.complexity())
    assert results.report("table2") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"# {complexity.TITLE}\n")
    names = ["tables/table2.md", *(f"figures/table2.{kind}" for kind in ("png", "svg", "pdf"))]
    assert [line for line in out.splitlines() if line.startswith("wrote")] == [
        *(f"wrote {results.path / name}" for name in names),
        f"wrote {results.path / 'index.html'}",
    ]
    before = {name: (results.path / name).read_bytes() for name in names}
    assert before["tables/table2.md"].decode() == complexity.table([made.complexity()])
    results.report("table2")
    assert {name: (results.path / name).read_bytes() for name in names} == before


@pytest.mark.parametrize("study", ["figure1", "figure4", "table2"])
def test_a_run_where_a_study_belongs_is_one_line(results: Any, capsys: Any, study: str) -> None:
    path = results.add(f"{study}/tanh", "seed0", [0.8])
    assert results.report(study) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"report: {path} is no whole record (missing: ['checks'")
    assert error.count("\n") == 1
    assert not (results.path / "tables").exists()


def test_a_study_where_a_run_belongs_is_one_line(results: Any, capsys: Any) -> None:
    path = add(results, replace(made.precision(), row="table9/tanh"))
    assert results.report("table9") == 1
    error = capsys.readouterr().err
    assert error.startswith(f"report: {path} is no whole record")
    assert error.count("\n") == 1


def test_a_study_in_another_ones_folder_is_one_line(results: Any, capsys: Any) -> None:
    path = add(results, made.precision())
    copy = path.with_name("seed1.json")
    copy.write_bytes(path.read_bytes())
    assert results.report("figure1") == 1
    said = f"report: {copy} holds the record of figure1/tanh/seed0: move it there\n"
    assert capsys.readouterr().err == said
