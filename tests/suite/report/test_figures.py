"""Figures: what is drawn, and that it is written in every format."""

from __future__ import annotations

import pytest
from report.conftest import figures, record, runs_table

from phantomgrad_suite.report.figures import plots_of
from phantomgrad_suite.report.figures.style import LINES, render
from phantomgrad_suite.runs.records import Result

STARTS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def test_every_format_is_written_and_again_the_same(results) -> None:
    results.add("table9/toy_implicit", "seed0", [0.8, 0.7])
    results.add("table9/honest/toy_implicit", "seed0", [0.8, 0.7])
    assert results.report("table9") == 0
    for name in ("table9", "table9_curves", "table9_honest_curves"):
        for kind, start in STARTS.items():
            content = (results.path / "figures" / f"{name}.{kind}").read_bytes()
            assert content.startswith(start)
            assert len(content) > 2000
    assert not [path for path in results.path.rglob(".*") if path.is_file()]
    before = {file: file.read_bytes() for file in (results.path / "figures").iterdir()}
    results.report("table9")
    assert {file: file.read_bytes() for file in before} == before


def test_dots_stand_at_the_printed_values(results) -> None:
    for seed, value in enumerate((0.8, 0.9)):
        results.add("table9/toy_implicit", f"seed{seed}", [value])
    (axes,) = figures(results.table("table9"))["table9"].axes
    drawn = sorted(float(c[0].get_xdata()[0]) for c in axes.containers)
    assert drawn == pytest.approx([83.9, 84.1, 85.0, 85.0])  # paper twice, best, last
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "Implicit",
        r"UPG $A_{5,\,0.5}$",
    ]


def test_percentages_end_at_100() -> None:
    table = runs_table("t", [record("t/a", f"seed{i}", [1.0]) for i in range(2)])
    (axes,) = figures(table)["t"].axes
    left, right = axes.get_xlim()
    assert left < 100 < right < 101


def test_curves_hold_means_and_leave_out_missing_epochs() -> None:
    runs = [
        record("t/a", "seed0", [0.5, None, 0.7]),
        record("t/a", "seed1", [0.7, 0.6, 0.9]),
    ]
    table = runs_table("t", runs)
    test, loss = figures(table)["t_curves"].axes
    assert list(test.lines[0].get_ydata()) == pytest.approx([60.0, 60.0, 80.0])
    assert list(loss.lines[0].get_ydata()) == pytest.approx([1.0, 1 / 2, 1 / 3])


def test_odd_tables_can_be_drawn() -> None:
    """More rows than line styles, one epoch, long names, a curve without a value."""
    runs = [
        record(
            f"t/{i}",
            "seed0",
            [0.5 + i / 100],
            label={"dataset": f"data {i % 2}", "model": f"m{i % 3}", "method": "long name " * 9},
        )
        for i in range(len(LINES) + 3)
    ]
    runs.append(record("t/z", "s", [0.5], curves={"test/accuracy": [None, None]}))
    table = runs_table("t", runs)
    drawings = plots_of(table)
    assert [drawing.name for drawing in drawings] == ["t", "t_curves"]
    assert all(set(render(drawing.draw)) == set(STARTS) for drawing in drawings)


def test_reduced_runs_are_not_among_the_curves_of_full_ones() -> None:
    runs = [
        record("t/a", "seed0", [0.5, 0.6]),
        record("t/a", "seed1", [0.1], protocol="reduced", changes=["x=1"]),
    ]
    table = runs_table("t", runs)
    figure = figures(table)["t_curves"]
    assert len(figure.axes[0].lines) == 1


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([130.0, 91.0], [90, 100, 110, 120, 130]), ([3200.0, 450.0], [500, 1000, 2000])],
)
def test_perplexities_have_plain_numbers_on_an_axis_of_ratios(values, ticks) -> None:
    curves = {"test/perplexity": values}
    result = Result("perplexity", min(values), 2, min(values))
    run = record("t/a", "seed0", values, result=result, curves=curves)
    table = runs_table("t", [run])
    figure = figures(table)["t_curves"]
    axes, low, high = figure.axes[0], *figure.axes[0].get_ylim()
    assert axes.get_yscale() == "log"
    assert [tick for tick in axes.get_yticks() if low <= tick <= high] == ticks
    assert axes.yaxis.get_major_formatter()(ticks[0]) == str(ticks[0])
