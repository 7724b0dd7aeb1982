"""The pages of docs/: examples run, generated parts are up to date, docstrings become Markdown."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

DOCS = Path(__file__).parents[3] / "docs"


def tool(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def examples() -> ModuleType:
    return tool("tools/examples.py")


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("name", ["convergence", "huggingface"])
def test_an_example_runs_and_shows_something(name: str, examples: ModuleType):
    """``make docs`` runs all of them, but only shows the code of one whose package is missing."""
    if name == "huggingface":
        pytest.importorskip("transformers", reason="transformers is not installed")
        pytest.importorskip("accelerate", reason="accelerate is not installed")
    torch.set_default_dtype(torch.float32)  # as outside of the tests
    page, figures = examples.markdown(DOCS / "examples" / f"{name}.py")
    assert page.startswith("# ")
    assert "Not run" not in page
    assert figures or "```text" in page
    assert all(name in page and content.startswith("<?xml") for name, content in figures.items())


def test_an_example_without_its_package_is_shown_but_not_run(tmp_path: Path, examples: ModuleType):
    path = tmp_path / "example.py"
    path.write_text(
        "# %% [markdown]\n# # Title\n\n# %%\nimport no_such_package\n\n# %%\nprint(1)\n"
    )
    page, figures = examples.markdown(path)
    assert "`no_such_package` was not installed" in page
    assert "print(1)" in page
    assert "```text" not in page
    assert not figures


def test_an_error_of_an_example_names_its_file_and_line(tmp_path: Path, examples: ModuleType):
    path = tmp_path / "example.py"
    path.write_text("# %% [markdown]\n# # Title\n\n# %%\nx = 1\n\nraise ValueError(x)\n")
    with pytest.raises(ValueError, match="1") as caught:
        examples.markdown(path)
    last = caught.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(path), 7)


def test_the_notebook_is_that_of_its_file(examples: ModuleType):
    path = DOCS / "examples" / "digits.py"
    written = path.with_suffix(".ipynb").read_text()
    assert written == examples.notebook(path)
    cells = json.loads(written)["cells"]
    assert "%pip install" in "".join(cells[1]["source"])


def test_the_tables_of_stabilisers_are_those_of_the_records(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(DOCS / "measurements" / "stabilisers")
    module, page = (
        tool("measurements/stabilisers/measure.py"),
        (DOCS / "stabilisers.md").read_text(),
    )
    assert module.with_tables(page) == page
    keys = [(r["setting"], r["variant"], r["seed"]) for r in module.read()]
    assert len(keys) == len(set(keys))


def test_docstrings_become_markdown():
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    markdown = tool("tools/docstrings.py").markdown
    assert markdown("A :math:`x^\n2`.", {}) == "A $x^ 2$."
    block = "Text\n\n.. math:: a\n          + b\n\nMore\n"
    assert markdown(block, {}) == "Text\n\n$$\na + b\n$$\n\nMore\n"
    public = {"DEQ": "phantomgrad.DEQ"}
    assert markdown("a :class:`phantomgrad.DEQ`", public) == "a [`DEQ`][phantomgrad.DEQ]"
    assert markdown("a :class:`Hidden`", public) == "a `Hidden`"
