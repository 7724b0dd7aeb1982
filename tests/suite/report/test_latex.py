"""The LaTeX: well-formed by counting, and compiled where a compiler is at hand."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from phantomgrad_suite.report.latex import escape, render


@pytest.fixture
def latex(results) -> str:
    short = {"protocol": "reduced", "changes": ["trainer.max_epochs=1", "50% of A & B_1"]}
    results.add("table9/toy_implicit", "seed0", [0.8, 0.7])
    results.add("table9/toy_implicit", "seed1", [0.2], **short)
    result = {"label": {"dataset": "Toy", "model": "IGNN", "method": "NPG A(5, 0.5)"}}
    results.add("table9/honest/toy_npg", "seed0", [0.8], **result)
    return render(results.table("table9"))


def test_braces_and_environments_are_balanced(latex: str) -> None:
    plain = re.sub(r"\\[{}]", "", latex)
    assert plain.count("{") == plain.count("}")
    assert len(re.findall(r"(?<!\\)\$", latex)) % 2 == 0
    for name in ("table", "tabular"):
        assert latex.count(rf"\begin{{{name}}}") == latex.count(rf"\end{{{name}}}") == 2


def test_every_row_has_the_columns_of_its_tabular(latex: str) -> None:
    for tabular in re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", latex, re.DOTALL):
        columns = re.search(r"@\{\}([lr]+)@\{\}", tabular)
        assert columns is not None
        rows = [line for line in tabular.splitlines() if line.endswith(r"\\")]
        cells = [row for row in rows if r"\multicolumn" not in row]
        assert len(cells) >= 3
        for row in cells:
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns[1]) - 1


def test_what_latex_cannot_read_is_escaped(latex: str) -> None:
    assert latex.isascii()
    assert r"NPG $A_{5,0.5}$" in latex
    assert r"{[}reduced: trainer.max\_epochs=1, 50\% of A \& B\_1{]}" in latex
    assert escape(r"a\b~c^d#{x}") == (
        r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d\#\{x\}"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_it_compiles(latex: str, tmp_path: Path) -> None:
    source = (
        r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}"
        f"\n{latex}\n" + r"\end{document}"
    )
    (tmp_path / "all.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
