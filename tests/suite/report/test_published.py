"""The published tables are those of the records; LaTeX is well-formed, and compiles."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from report.conftest import plots, points, record, runs_table

from phantomgrad_suite.report.inputs import read_published
from phantomgrad_suite.report.latex import escape, render

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


@pytest.fixture
def latex(results):
    short = {"protocol": "reduced", "changes": ["trainer.max_epochs=1", "50% of A & B_1"]}
    results.add("table9/toy_implicit", "seed0", [0.8, 0.7])
    results.add("table9/toy_implicit", "seed1", [0.2], **short)
    result = {"label": {"dataset": "Toy", "model": "IGNN", "method": "NPG A(5, 0.5)"}}
    results.add("table9/honest/toy_npg", "seed0", [0.8], **result)
    return render(results.table("table9"))


def test_braces_and_environments_are_balanced(latex):
    plain = re.sub(r"\\[{}]", "", latex)
    assert plain.count("{") == plain.count("}")
    assert len(re.findall(r"(?<!\\)\$", latex)) % 2 == 0
    for name in ("table", "tabular"):
        assert latex.count(rf"\begin{{{name}}}") == latex.count(rf"\end{{{name}}}") == 2


def test_every_row_has_the_columns_of_its_tabular(latex):
    for tabular in re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", latex, re.DOTALL):
        columns = re.search(r"@\{\}([lr]+)@\{\}", tabular)
        assert columns is not None
        rows = [line for line in tabular.splitlines() if line.endswith(r"\\")]
        cells = [row for row in rows if r"\multicolumn" not in row]
        assert len(cells) >= 3
        for row in cells:
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns[1]) - 1


def test_what_latex_cannot_read_is_escaped(latex):
    assert latex.isascii()
    assert r"NPG $A_{5,0.5}$" in latex
    assert r"{[}reduced: trainer.max\_epochs=1, 50\% of A \& B\_1{]}" in latex
    assert escape(r"a\b~c^d#{x}") == (
        r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d\#\{x\}"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_it_compiles(latex, tmp_path):
    source = (
        r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
        f"\n{latex}\n" + r"\end{document}"
    )
    (tmp_path / "all.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
