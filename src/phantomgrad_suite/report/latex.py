"""A table as LaTeX, to be included with ``\\input``: for XeLaTeX or LuaLaTeX, with booktabs."""

import pandas as pd

from phantomgrad_suite.report.table import Block, Section, Table


def render(table: Table) -> str:
    """Return a ``table`` environment for each block of each section."""
    blocks = [(section, block) for section in table.sections for block in section.blocks]
    return "\n".join(_grid(table, section, block) for section, block in blocks)


def _grid(table: Table, section: Section, block: Block) -> str:
    headings = [column.heading for column in section.columns]
    rows = [[row.text(heading) for heading in headings] for row in block.rows]
    grid: str = pd.DataFrame(rows, columns=headings).to_latex(
        index=False,
        escape=True,
        caption=": ".join(filter(None, (table.title, section.title, block.title))),
        label=f"tab:{table.key}",
        column_format="".join("r" if column.numeric else "l" for column in section.columns),
    )
    return grid
