"""Run examples, and write each as a page, as a picture for the gallery, or as a notebook.

python docs/tools/examples.py docs/examples/*.py   # pictures, and notebooks that are there

An example is a Python file of cells that start with `# %%`, or `# %% [markdown]` for text.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parents[1] / "pictures"
INSTALL = """\
# Outside of a checkout, for example on Colab: upload the wheel (`pip wheel --no-deps .` makes it).
from importlib.util import find_spec

if find_spec("phantomgrad") is None:
    %pip install --quiet phantomgrad-*.whl scikit-learn matplotlib"""


@dataclass
class Cell:
    """A cell: its text and, if it is code that has run, what it printed and drew."""

    code: bool
    text: str
    printed: str = ""
    figures: list[str] = field(default_factory=list)  # SVG
    missing: str = ""  # the module without which the run has ended here


def cells(path: Path) -> list[Cell]:
    """Return the cells of an example."""
    found = []
    for part in re.split(r"^# %%", path.read_text(), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        code = "[markdown]" not in head
        text = body if code else re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        found.append(Cell(code, text.strip("\n")))
    return found


def executed(path: Path) -> list[Cell]:
    """Run an example; return its cells.

    A module that is not installed ends the run.
    """
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    style = {"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 9}
    found = cells(path)
    for cell in filter(lambda cell: cell.code, found):
        out = io.StringIO()
        try:
            with redirect_stdout(out), mpl.rc_context(style):
                code = "\n" * line_of(path, cell.text) + cell.text
                exec(compile(code, str(path), "exec"), names)
                cell.figures = [_drawn(plt.figure(number)) for number in plt.get_fignums()]
        except ModuleNotFoundError as error:
            cell.missing = error.name or ""
            break
        finally:
            plt.close("all")
            cell.printed = out.getvalue().rstrip()
    return found


def _drawn(figure: Any) -> str:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
    return re.sub(r"[ \t]+$", "", drawn.getvalue(), flags=re.MULTILINE)


def line_of(path: Path, text: str) -> int:
    """Return how many lines of the file precede a cell, for tracebacks."""
    return path.read_text().partition(text)[0].count("\n")


def markdown(path: Path) -> tuple[str, dict[str, str]]:
    """Run an example; return its page and its figures, SVG by file name."""
    parts, figures = [], dict[str, str]()
    for number, cell in enumerate(executed(path)):
        parts.append(f"```python\n{cell.text}\n```" if cell.code else cell.text)
        for drawn in cell.figures:
            name = f"{path.stem}_{number}.svg"
            figures[name] = drawn
            parts.append(f"![Figure of the code above]({name})")
        if cell.missing:
            parts.append(f"*Not run from here on: `{cell.missing}` was not installed.*")
        if cell.printed:
            parts.append(f"```text\n{cell.printed}\n```")
    source = f"The file: `docs/examples/{path.name}`."
    return "\n\n".join([*parts, source]) + "\n", figures


def notebook(run: list[Cell]) -> str:
    """Return an example as a notebook with its outputs; after the title, how to install."""
    title, *others = run
    entries = []
    for number, cell in enumerate([title, Cell(True, INSTALL), *others]):
        entry: dict[str, Any] = {
            "cell_type": "code" if cell.code else "markdown",
            "id": f"cell-{number}",
            "metadata": {},
            "source": cell.text.splitlines(keepends=True),
        }
        if cell.code:
            entry |= {"execution_count": None, "outputs": _outputs(cell)}
        entries.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": entries,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _outputs(cell: Cell) -> list[dict[str, Any]]:
    drawn = [
        {
            "output_type": "display_data",
            "metadata": {},
            "data": {"image/svg+xml": svg.splitlines(keepends=True)},
        }
        for svg in cell.figures
    ]
    text = (cell.printed + "\n").splitlines(keepends=True)
    printed = {"output_type": "stream", "name": "stdout", "text": text}
    return [printed, *drawn] if cell.printed else drawn


def main(paths: list[Path]) -> None:
    """Run each example; write the first of its figures, and its notebook if it has one."""
    for path in paths:
        run = executed(path)
        print("\n".join(filter(None, (path.stem, *(cell.printed for cell in run)))))
        for drawn in [drawn for cell in run for drawn in cell.figures][:1]:
            (PICTURES / f"{path.stem}.svg").write_text(drawn)
        if path.with_suffix(".ipynb").exists():
            path.with_suffix(".ipynb").write_text(notebook(run))


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
