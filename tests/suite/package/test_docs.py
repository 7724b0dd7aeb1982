"""README and docs/: code runs as printed, and generated parts are up to date."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
END = "end of a block"
NUMBER = r"\d+(?:\.\d+)?"


def tool(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = ["../README", "install", "quickstart", "recipes"]
READ = """
import runpy, sys, torch
for page in sys.argv[1:]:
    torch.seed()
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    runpy.run_path(page)
"""


def blocks(name):
    """The blocks of a page, and what it says they print."""
    page = (DOCS / f"{name}.md").read_text()
    return re.findall(r"```python\n(.*?)```(?:\s+```text\n(.*?)```)?", page, re.DOTALL)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each block prints, in a process of their own, as a reader's, page by page."""
    folder = tmp_path_factory.mktemp("pages")
    pages = [folder / f"{i}.py" for i in range(len(PAGES))]
    for path, name in zip(pages, PAGES, strict=True):
        path.write_text("".join(f"{code}\nprint({END!r})\n" for code, _ in blocks(name)))
    command = [sys.executable, "-c", READ, *pages]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return iter(done.stdout.split(f"{END}\n"))


def test_blocks_print_what_the_pages_say(printed):
    """The words, and the numbers within a tenth."""
    for name in PAGES:
        assert any(said for _, said in blocks(name))
        for _, said in blocks(name):
            found = next(printed)
            assert re.split(NUMBER, found) == re.split(NUMBER, said)
            numbers = [[float(n) for n in re.findall(NUMBER, text)] for text in (found, said)]
            assert numbers[0] == pytest.approx(numbers[1], rel=0.1)
    assert list(printed) == [""]


def test_the_notebook_is_that_of_its_file_and_has_its_outputs():
    path, examples = DOCS / "examples" / "digits.py", tool("tools/examples.py")
    texts = path.with_suffix(".ipynb").read_text(), examples.notebook(examples.cells(path))
    written, fresh = (json.loads(text)["cells"] for text in texts)
    assert [cell["source"] for cell in written] == [cell["source"] for cell in fresh]
    assert "%pip install" in "".join(written[1]["source"])
    outputs = [output for cell in written for output in cell.get("outputs", [])]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}


def test_the_tables_of_stabilisers_are_those_of_the_records(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "measurements" / "stabilisers")
    module = tool("measurements/stabilisers/measure.py")
    page = (DOCS / "stabilisers.md").read_text()
    assert module.with_tables(page) == page
    keys = [(r["setting"], r["variant"], r["seed"]) for r in module.read()]
    assert len(keys) == len(set(keys))
