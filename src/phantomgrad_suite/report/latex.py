"""A table as LaTeX, to be read in with ``\\input`` (needs booktabs and graphicx)."""

from __future__ import annotations

import re

from phantomgrad_suite.report.layout import Table
from phantomgrad_suite.report.notes import cost_notes, notes
from phantomgrad_suite.report.tables import Grid, cost_grid, result_grid

_ESCAPES = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "→": r"$\rightarrow$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "§": r"\S{}",
    "¶": r"\P{}",
    "—": r"---",
    "…": r"\dots{}",
    "[": "{[}",  # no optional argument of the preceding \\
    "]": "{]}",
}
_PHANTOM = re.compile(r"A\((\d+), ([\d.]+)\)")


def to_latex(table: Table) -> str:
    """Return the results and, as a table of its own, what they cost."""
    results, costs = result_grid(table), cost_grid(table)
    parts = [
        r"% Made by scripts/report.py. Needs \usepackage{booktabs,graphicx}.",
        _float(results, table.title, f"tab:{table.name}", notes(table, results.headings)),
    ]
    if costs is not None:
        title = f"{table.title}. Cost"
        parts.append(
            _float(costs, title, f"tab:{table.name}-cost", cost_notes(table, costs.headings))
        )
    return "\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Write plain text in LaTeX; ``A(5, 0.5)`` becomes the paper's symbol."""
    pieces, end = [], 0
    for match in _PHANTOM.finditer(text):
        pieces.append(_escape_letters(text[end : match.start()]))
        pieces.append(f"$A_{{{match[1]},{match[2]}}}$")
        end = match.end()
    return "".join([*pieces, _escape_letters(text[end:])])


def _escape_letters(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def _float(grid: Grid, title: str, label: str, sentences: list[str]) -> str:
    caption = escape(re.sub(r"^Table \d+: ", "", title))
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{caption}.}}",
            rf"  \label{{{label}}}",
            r"  \resizebox{\linewidth}{!}{%",
            *(f"    {line}" for line in _tabular(grid)),
            r"  }",
            r"  \par\vspace{4pt}",
            rf"  {{\footnotesize {escape(' '.join(sentences))}\par}}",
            r"\end{table}",
        ]
    )


def _tabular(grid: Grid) -> list[str]:
    lines = [rf"\begin{{tabular}}{{@{{}}{''.join('r' if n else 'l' for n in grid.numeric)}@{{}}}}"]
    lines += [r"\toprule", _line(grid.headings)]
    for section in grid.sections:
        lines.append(r"\midrule")
        if section.title:
            width = len(grid.headings)
            lines.append(
                rf"\multicolumn{{{width}}}{{@{{}}l}}{{\emph{{{escape(section.title)}}}}} \\"
            )
            lines.append(r"\addlinespace")
        for position, row in enumerate(section.rows):
            if position in section.breaks:
                lines.append(r"\addlinespace")
            lines.append(_line(row))
    return [*lines, r"\bottomrule", r"\end{tabular}%"]


def _line(cells: tuple[str, ...]) -> str:
    return " & ".join(escape(cell) for cell in cells) + r" \\"
