"""A table as LaTeX, to be included with ``\\input`` (needs booktabs and graphicx)."""

from __future__ import annotations

import re

from phantomgrad_suite.report.table import Row, Section, Table

_MATH = {
    "±": r"\pm",
    "\N{MULTIPLICATION SIGN}": r"\times",
    "→": r"\rightarrow",
    "↑": r"\uparrow",
    "↓": r"\downarrow",
    "∇": r"\nabla",
    "‖": r"\|",
    "ε": r"\epsilon",
    "θ": r"\theta",
    "κ": r"\kappa",
    "λ": r"\lambda",
    "²": "^2",
    "₀": "_0",
}
_ESCAPES = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"${command}$" for letter, command in _MATH.items()},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "§": r"\S{}",
    "¶": r"\P{}",
    "—": r"---",
    "…": r"\dots{}",
    "[": "{[}",  # else an optional argument of the preceding \\
    "]": "{]}",
}
_PHANTOM = re.compile(r"A\((\d+), ([\d.]+)\)")


def render(table: Table) -> str:
    """Return a ``table`` environment for each section with a grid; other text as paragraphs."""
    parts = [
        r"% Made by scripts/report.py. Needs \usepackage{booktabs,graphicx}.",
        *([escape(table.entry.caption)] if table.entry.caption else []),
        *(
            _float(table, section) if section.blocks else escape(" ".join(section.notes))
            for section in table.sections
        ),
    ]
    return "\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Return plain text as LaTeX, with ``A(5, 0.5)`` as the paper's symbol."""
    start, pieces = 0, []
    for match in _PHANTOM.finditer(text):
        pieces += [*map(_escape_letter, text[start : match.start()])]
        pieces.append(f"$A_{{{match[1]},{match[2]}}}$")
        start = match.end()
    return "".join([*pieces, *map(_escape_letter, text[start:])])


def _escape_letter(letter: str) -> str:
    return _ESCAPES.get(letter, letter)


def _float(table: Table, section: Section) -> str:
    title = re.sub(r"^Table \d+: ", "", table.title)
    caption = f"{title}. {section.title}" if section.title else title
    suffix = re.sub(r"\W+", "-", f" {section.title}").rstrip("-").lower()
    sentences = " ".join(filter(None, (section.text, *section.notes)))
    return "\n".join(
        [
            r"\begin{table}[t]",
            r"  \centering",
            rf"  \caption{{{escape(caption)}.}}",
            rf"  \label{{tab:{table.key}{suffix if section.title else ''}}}",
            r"  \resizebox{\linewidth}{!}{%",
            *(f"    {line}" for line in _tabular(section)),
            r"  }",
            r"  \par\vspace{4pt}",
            rf"  {{\footnotesize {escape(sentences)}\par}}",
            r"\end{table}",
        ]
    )


def _tabular(section: Section) -> list[str]:
    width = len(section.columns)
    alignment = "".join("r" if column.numeric else "l" for column in section.columns)
    headings = " & ".join(escape(column.heading) for column in section.columns)
    lines = [rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}", r"\toprule", rf"{headings} \\"]
    for block in section.blocks:
        lines.append(r"\midrule")
        if block.title:
            title = rf"\emph{{{escape(block.title)}}}"
            lines += [rf"\multicolumn{{{width}}}{{@{{}}l}}{{{title}}} \\", r"\addlinespace"]
        for position, row in enumerate(block.rows):
            lines += [r"\addlinespace"] if position in block.breaks else []
            lines.append(_line(section, row))
    return [*lines, r"\bottomrule", r"\end{tabular}%"]


def _line(section: Section, row: Row) -> str:
    cells = (escape(str(row.cells[column.heading])) for column in section.columns)
    return " & ".join(cells) + r" \\"
