"""A table as Markdown, aligned so that the source can be read too."""

from phantomgrad_suite.report.table import Block, Row, Section, Table


def render(table: Table) -> str:
    """Return the title and caption of a table and all of its sections."""
    parts = [f"# {table.title}", table.entry.caption]
    for section in table.sections:
        parts += [f"## {section.title}" if section.title else "", section.text]
        parts += [grid(section, block) for block in section.blocks]
        parts.append("\n".join(f"- {note}" for note in section.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def grid(section: Section, block: Block) -> str:
    """Return a block of a section as a table, under its title."""
    columns = []
    for heading, numeric in ((column.heading, column.numeric) for column in section.columns):
        cells = [heading, *(_linked(row, heading) for row in block.rows)]
        width = max(3, *map(len, cells))
        cells.insert(1, "-" * (width - numeric) + ":" * numeric)
        columns.append([cell.rjust(width) if numeric else cell.ljust(width) for cell in cells])
    lines = [f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True)]
    return "\n".join([f"**{block.title}**\n", *lines] if block.title else lines)


def _linked(row: Row, heading: str) -> str:
    text, link = row.text(heading).replace("|", "\\|"), row.link(heading)
    return f"[{text}]({link})" if link else text
