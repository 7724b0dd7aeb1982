"""The pages of docs/: examples run, generated parts are up to date, docstrings become Markdown."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def tool(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def examples():
    return tool("tools/examples.py")


def test_the_notebook_is_that_of_its_file(examples):
    path = DOCS / "examples" / "digits.py"
    written = path.with_suffix(".ipynb").read_text()
    assert written == examples.notebook(path)
    cells = json.loads(written)["cells"]
    assert "%pip install" in "".join(cells[1]["source"])


def test_the_tables_of_stabilisers_are_those_of_the_records(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "measurements" / "stabilisers")
    module, page = (
        tool("measurements/stabilisers/measure.py"),
        (DOCS / "stabilisers.md").read_text(),
    )
    assert module.with_tables(page) == page
    keys = [(r["setting"], r["variant"], r["seed"]) for r in module.read()]
    assert len(keys) == len(set(keys))
