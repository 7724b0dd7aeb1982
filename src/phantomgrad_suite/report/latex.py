"""A table as LaTeX, to be included with ``\\input`` (needs booktabs and graphicx)."""

import re

from phantomgrad_suite.report.catalogue import LATEX, templates
from phantomgrad_suite.report.table import Table

_PHANTOM = re.compile(r"(A\(\d+, [\d.]+\))")


def render(table: Table) -> str:
    """Return a ``table`` environment for each section with a grid; other text as paragraphs."""
    environment = templates(
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        finalize=lambda value: escape(str(value)),
    )
    title = re.sub(r"^Table \d+: ", "", table.title)
    return environment.get_template("table.tex.j2").render(table=table, title=title)


def escape(text: str) -> str:
    """Return plain text as LaTeX, with ``A(5, 0.5)`` as the paper's symbol."""
    pieces = []
    for piece in _PHANTOM.split(text):
        if _PHANTOM.fullmatch(piece):
            steps, damping = piece[2:-1].split(", ")
            pieces.append(f"$A_{{{steps},{damping}}}$")
        else:
            pieces += [LATEX.get(letter, letter) for letter in piece]
    return "".join(pieces)
