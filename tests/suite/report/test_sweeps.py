"""Figure 3: a grid of runs as lines over k, for each data set."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from report.conftest import record

from phantomgrad_suite.runs.records import Record, Result
from report import conftest

STEPS, DAMPINGS = (1, 3, 9), (0.5, 1.0)


def point(form: str, k: int, d: float, seed: int) -> Record:
    """A run whose best is 0.5 + k/100 + d/10 for UPG, a tenth less for NPG; the last is less."""
    best = 0.5 + k / 100 + d / 10 - (0.1 if form == "npg" else 0) + (0.01 if seed else -0.01)
    return record(
        f"figure3/digits/{form}_k{k}_d{d}",
        f"seed{seed}",
        [best],
        label={"dataset": "Digits", "model": "DEQ", "method": f"{form.upper()} A({k}, {d})"},
        result=Result("accuracy", best, 1, best - 0.05),
        config_hash=f"{form}{k}{d}",
    )


def grid() -> list[Record]:
    every = [(form, k, d) for form in ("upg", "npg") for k in STEPS for d in DAMPINGS]
    return [point(*one, seed) for one in every for seed in (0, 1)]


def figures(records: list[Record]) -> dict[str, Figure]:
    return conftest.figures(conftest.runs_table("figure3", records))


def lines(axes: Axes) -> list[tuple[list[float], list[float]]]:
    """What the lines with error bars run through."""
    drawn = [container.lines[0] for container in axes.containers]
    steps = [[round(float(k)) for k in line.get_xdata()] for line in drawn]  # they stand apart
    return [(k, list(line.get_ydata())) for k, line in zip(steps, drawn, strict=True)]


def test_lines_run_through_the_means_over_k() -> None:
    """(a) UPG with every λ; (b) both forms with the largest; best epochs above, last below."""
    found = figures(grid())
    assert list(found) == ["figure3_digits"]
    upg, both, last, _ = found["figure3_digits"].axes
    expected = [[50 + k + 10 * d for k in STEPS] for d in DAMPINGS]
    assert lines(upg) == [([1, 3, 9], pytest.approx(values)) for values in expected]
    npg, one = lines(both)
    assert npg == ([1, 3, 9], pytest.approx([v - 10 for v in expected[1]]))
    assert one == ([1, 3, 9], pytest.approx(expected[1]))
    (bars,) = upg.containers[0].lines[2]
    assert list(bars.get_segments()[0][:, 1]) == pytest.approx([55, 57])  # standard deviation
    assert lines(last)[0] == ([1, 3, 9], pytest.approx([v - 5 for v in expected[0]]))


def test_panels_are_named() -> None:
    figure = figures(grid())["figure3_digits"]
    upg, both, *below = figure.axes
    assert upg.get_title(loc="left") == r"(a) Impact of $\lambda$ and $k$ (UPG)"
    assert both.get_title(loc="left") == r"(b) NPG vs. UPG ($\lambda = 1.0$)"
    assert upg.get_ylabel() == "accuracy (%) ↑\nbest epoch"
    assert below[0].get_ylabel().endswith("\nlast epoch")
    assert [axes.get_xlabel() for axes in below] == ["k", "k"]
    assert [label.get_text() for label in below[0].get_xticklabels()] == ["1", "3", "9"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        r"UPG, $\lambda = 0.5$",
        r"UPG, $\lambda = 1.0$",
        r"NPG, $\lambda = 1.0$",
    ]
    assert "over 2 runs" in legend.get_title().get_text()


def test_missing_points_are_left_out() -> None:
    records = [r for r in grid() if r.row != "figure3/digits/upg_k3_d0.5"]
    upg = figures(records)["figure3_digits"].axes[0]
    assert [steps for steps, _ in lines(upg)] == [[1, 9], [1, 3, 9]]


def test_every_data_set_has_a_figure_and_other_rows_have_none() -> None:
    records = [
        point("upg", 1, 0.5, 0),
        record("figure3/chains/upg_k1_d0.5", "seed0", [0.8]),
        record("figure3/other/implicit", "seed0", [0.8]),
    ]
    assert list(figures(records)) == ["figure3_chains", "figure3_digits"]
