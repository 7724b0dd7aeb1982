"""Figures of reasoners: what they measure by segment, and a puzzle that is filled in."""

from dataclasses import replace

import pytest
from report.conftest import gradient_of, plots, points, record, runs_table

from phantomgrad_suite.report.claims.quantities import QUANTITIES
from phantomgrad_suite.report.figures.style import styled

STEPS = [0.0, 100.0]


def instrumented(instance, shift=0.0):
    """Two segments at two steps; the cosines are known."""
    run = record("reasoning/short", instance, [0.5, 0.8])
    cosines = {"last_2": [0.1, 0.2], "last_7": [0.3, 0.6], "npg_k3_d0.5": [0.1, 0.1]}
    cosines["implicit"] = [0.0, 0.4]
    curves = {"precision/step": STEPS}
    for name, curve in cosines.items():
        curves[f"precision/{name}/cosine"] = [value + shift for value in curve]
        curves[f"precision/{name}/norm_ratio"] = [2.0, 4.0]
    for segment, residual in enumerate((0.5, 0.1), start=1):
        for name in ("residual", "spectral_radius", "converged", "adjoint_converged", "solved"):
            curves[f"precision/segment{segment}/{name}"] = [1.0, residual]
    curves["precision/residual_order"] = [0.1, 0.7]
    estimators = {"npg_k3_d0.5": gradient_of("npg_k3_d0.5")}
    measure = {"segments": {"recorded": [2, 7], "estimators": estimators}}
    config = {**run.config, "measure": measure}
    return replace(run, curves={**run.curves, **curves}, config=config)


def test_gradients_and_segments_are_drawn():
    """Means over the runs, and none of the figures of equilibria."""
    drawn = plots(runs_table("reasoning", [instrumented("seed0"), instrumented("seed1", 0.2)]))
    assert {name for name in drawn if "short" in name or "cosines" in name or "radius" in name} == {
        "reasoning_short_gradients",
        "reasoning_short_segments",
    }
    found = points(drawn["reasoning_short_gradients"])
    last, fixed = "the last j steps", "the recursion as a map"
    assert found[last, "cosine", "j = 7"] == (STEPS, pytest.approx([0.4, 0.7]))
    assert found[fixed, "ratio of norms", "NPG A(3, 0.5)"] == (STEPS, [2.0, 4.0])
    assert {label for row, _, label in found if row == fixed} == {"NPG A(3, 0.5)", "implicit"}
    found = points(drawn["reasoning_short_segments"])
    mean = "mean over the puzzles"
    residual = found[mean, "log10 of the last recursion's residual", "step 100"]
    assert residual == ([1, 2], pytest.approx([-0.30103, -1.0]))
    assert found[mean, "spectral radius", "step 100"] == ([1, 2], [0.5, 0.1])
    assert len({label for _, _, label in found}) == 2


def test_quantities_of_claims():
    """A lead is the mean over the steps; residuals are logarithms at the last one."""
    run = instrumented("seed0")
    cosines = {"preconditioned_m5": [0.9, 1.0], "gmres_m5": [0.8, 0.9], "npg_k5_d0.5": [0.3, 0.2]}
    curves = {f"precision/{name}/cosine": curve for name, curve in cosines.items()}
    run = replace(run, curves=run.curves | curves)
    expected = {"lead_recursion": 0.3, "lead_npg": -0.05, "residual_order": 0.7}
    expected |= {"residual_log": 1.0, "residual_fall": -0.69897}
    expected |= {"lead_preconditioned": 0.1, "lead_over_phantom": 0.7}
    assert expected.keys() == {name for name in QUANTITIES if name[:3] in ("lea", "res")}
    found = {name: QUANTITIES[name].of(run, run) for name in expected}
    assert found == pytest.approx(expected, abs=1e-6)


def example(name, **boards):
    curves = {f"example/{key}": board for key, board in boards.items()}
    run = record("reasoning/puzzle", "seed0", [0.5, 0.8], data={"name": name})
    return replace(run, curves={**run.curves, **curves})


def test_a_puzzle_is_filled_in_segment_by_segment():
    """Clues are bold, wrong digits red on a tinted ground."""
    clues, solution = [2, 1, 1, 1] * 4, [2, 3, 4, 5] * 4
    wrong = [*solution[:-1], 2]
    run = example("Sudoku-4x4", inputs=clues, targets=solution, segment1=wrong, segment2=solution)
    strip = plots(runs_table("reasoning", [run]))["reasoning_puzzle_example"]
    with styled():
        puzzle, first, last = strip.draw().axes
    assert puzzle.get_title("left") == "puzzle"
    assert [axes.get_title("left") for axes in (first, last)] == [
        "segment 1: 1 wrong",
        "segment 2: solved",
    ]
    assert "".join(text.get_text() for text in puzzle.texts) == "1" * 4
    assert "".join(text.get_text() for text in first.texts) == "1234" * 3 + "1231"
    assert [text.get_fontweight() for text in first.texts[:2]] == ["bold", "normal"]
    assert len({text.get_color() for text in first.texts[:-1]}) == 1
    assert first.texts[-1].get_color() != first.texts[0].get_color()
    assert [len(axes.patches) for axes in (puzzle, first, last)] == [0, 1, 0]


def test_a_row_without_a_folder_has_its_strip():
    run = example("Sudoku-4x4", inputs=[1] * 16, targets=[2] * 16, segment1=[2] * 16)
    drawn = plots(runs_table("reasoning", [replace(run, row="puzzle")]))
    assert "reasoning_example" in drawn


def test_looped_models_are_drawn_by_loops():
    """Means over the runs of the last epoch, a panel for each length of words."""
    names = ("test/cell_accuracy", "test/length16/cell_accuracy")

    def run(seed, shift):
        curves = {
            f"{name}{at}": [0.0, value + shift - 0.1 * i]
            for i, name in enumerate(names)
            for at, value in (("", 0.6), ("_at_2", 0.4), ("_at_4", 0.3))
        }
        made = record("looped/words_fixed", f"seed{seed}", [0.0, 0.6 + shift])
        config = {**made.config, "task": {"evaluated_segments": [2, 4]}, "solver": {"n": 4}}
        result = replace(made.result, metric="cell_accuracy")
        return replace(made, curves=made.curves | curves, config=config, result=result)

    (figure,) = plots(runs_table("looped", [run(0, 0.0), run(1, 0.2)])).values()
    row, found = "Toy\ncell accuracy (%) ↑", points(figure)
    assert found[row, "test", "Implicit"] == ([4, 8, 16], pytest.approx([70, 50, 40]))
    assert found[row, "length 16", "Implicit"] == ([4, 8, 16], pytest.approx([60, 40, 30]))
