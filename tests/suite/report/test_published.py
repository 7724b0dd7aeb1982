"""The published tables are those of the records; LaTeX is well-formed, and compiles."""

from dataclasses import replace
from pathlib import Path

import pytest
from report.conftest import plots, points, record, runs_table

from phantomgrad_suite.report.inputs import read_published
from phantomgrad_suite.report.latex import render

OURS = Path(__file__).parents[3] / "results" / "published_curves.csv"
HEADER = "row,run,epoch,test/accuracy,train/loss"


def test_the_authors_log_is_three_runs_of_220_epochs():
    published = read_published(OURS)
    curves = published["table3/cifar10_upg"]
    assert [len(run) for run in curves["test/accuracy"]] == [220] * 3
    assert [max(run) for run in curves["test/accuracy"]] == [0.9489, 0.9509, 0.9521]
    assert [run[0] for run in curves["test/accuracy"]] == [0.3813, 0.3188, 0.3580]
    assert next(iter(curves["train/loss"]))[0] == 2.02273
    begun = published["table3/cifar10_upg_first_epochs"]
    assert begun == {name: [run[:5] for run in runs] for name, runs in curves.items()}


def test_they_are_drawn_beside_ours_as_far_as_ours_go(tmp_path):
    path = tmp_path / "published_curves.csv"
    theirs = [[0.1, 0.3, 0.9], [0.3, 0.5, 0.9]]
    lines = [
        f"t/a,{run},{epoch},{value},{2 * value}"
        for run, values in enumerate(theirs)
        for epoch, value in enumerate(values, start=1)
    ]
    path.write_text("\n".join([HEADER, *lines]))
    runs = [record("t/a", "seed0", [0.2, 0.4]), record("t/b", "seed0", [0.3, 0.5])]
    table = replace(runs_table("t", runs), published=read_published(path))
    curves = points(plots(table)["t_curves"])
    row, theirs = "Toy\naccuracy (%) ↑", "Implicit: the authors' log"
    assert curves[row, "Test", theirs] == ([1, 2], pytest.approx([20.0, 40.0]))
    assert curves[row, "Training loss", theirs][1] == pytest.approx([0.4, 0.8])
    assert len(curves) == 2 * 2  # ours have one name here


def test_without_the_file_there_are_none(tmp_path):
    assert read_published(tmp_path / "published_curves.csv") == {}


def test_latex_has_every_row_and_escapes_what_it_cannot_read(results):
    results.add("table9/toy_implicit", "seed0", [0.8, 0.7])
    label = {"dataset": "Toy", "model": "A & B_1", "method": "50% UPG"}
    results.add("table9/other", "seed0", [0.8], label=label)
    latex = render(results.table("table9"))
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    assert r"A \& B\_1" in latex
    assert r"50\% UPG" in latex
    assert latex.count("\\\\\n") == 3 + 2 + 2  # rows and headings
