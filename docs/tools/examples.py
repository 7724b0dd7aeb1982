"""Run an example and write it as a page, or as a notebook.

python docs/tools/examples.py docs/examples/digits.py  # writes docs/examples/digits.ipynb

An example is a Python file of cells that start with `# %%`, or `# %% [markdown]` for text.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

INSTALL = """\
# Outside of a checkout, for example on Colab: upload the wheel (`pip wheel --no-deps .` makes it).
from importlib.util import find_spec

if find_spec("phantomgrad") is None:
    %pip install --quiet phantomgrad-*.whl scikit-learn matplotlib"""


def cells(path: Path) -> list[tuple[str, str]]:
    """Return the kind of each cell, `markdown` or `code`, and its text."""
    found = []
    for part in re.split(r"^# %%", path.read_text(), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        kind = "markdown" if "[markdown]" in head else "code"
        if kind == "markdown":
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        found.append((kind, body.strip("\n")))
    return found


def markdown(path: Path) -> tuple[str, dict[str, str]]:
    """Run an example; return its page and its figures, SVG by file name.

    A module that is not installed ends the run: the rest of the page has code only.
    """
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    parts, figures, missing = [], {}, ""
    for number, (kind, text) in enumerate(cells(path)):
        if kind == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        if missing:
            continue
        out = io.StringIO()
        try:
            with redirect_stdout(out), mpl.rc_context({"svg.fonttype": "none", "font.size": 9}):
                exec(compile("\n" * line_of(path, text) + text, str(path), "exec"), names)
                for figure in map(plt.figure, plt.get_fignums()):
                    name, drawn = f"{path.stem}_{number}.svg", io.StringIO()
                    figure.savefig(drawn, format="svg", bbox_inches="tight")
                    figures[name] = drawn.getvalue()
                    parts.append(f"![Figure of the code above]({name})")
        except ModuleNotFoundError as error:
            missing = error.name or ""
            parts.append(f"*Not run from here on: `{missing}` was not installed.*")
        finally:
            plt.close("all")
        if out.getvalue():
            parts.append(f"```text\n{out.getvalue().rstrip()}\n```")
    source = f"The file: `docs/examples/{path.name}`."
    return "\n\n".join([*parts, source]) + "\n", figures


def line_of(path: Path, text: str) -> int:
    """Return how many lines of the file precede a cell, for tracebacks."""
    return path.read_text().partition(text)[0].count("\n")


def notebook(path: Path) -> str:
    """Return the example as a notebook without outputs."""
    content = [("code", INSTALL), *cells(path)]
    content[0], content[1] = content[1], content[0]  # after the title
    entries = []
    for number, (kind, text) in enumerate(content):
        entry: dict[str, Any] = {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": text.splitlines(keepends=True),
        }
        if kind == "code":
            entry |= {"execution_count": None, "outputs": []}
        entries.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": entries,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        Path(argument).with_suffix(".ipynb").write_text(notebook(Path(argument)))
