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


@pytest.mark.parametrize("name", ["../README", "install", "quickstart", "recipes"])
def test_blocks_print_what_the_page_says(name, tmp_path):
    """The words, and the numbers within a tenth, in a process of its own, as a reader's."""
    page = (DOCS / f"{name}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```(?:\s+```text\n(.*?)```)?", page, re.DOTALL)
    assert any(printed for _, printed in blocks)
    script = tmp_path / "page.py"
    script.write_text(f"print({END!r})\n".join(code for code, _ in blocks))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    for found, (_, printed) in zip(done.stdout.split(f"{END}\n"), blocks, strict=True):
        assert re.split(NUMBER, found) == re.split(NUMBER, printed)
        numbers = [[float(n) for n in re.findall(NUMBER, text)] for text in (found, printed)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.1)


@pytest.fixture(scope="module")
def examples():
    return tool("tools/examples.py")


def test_the_notebook_is_that_of_its_file_and_has_its_outputs(examples):
    path = DOCS / "examples" / "digits.py"
    written, fresh = (
        json.loads(text)["cells"]
        for text in (
            path.with_suffix(".ipynb").read_text(),
            examples.notebook(examples.cells(path)),
        )
    )
    assert [cell["source"] for cell in written] == [cell["source"] for cell in fresh]
    assert "%pip install" in "".join(written[1]["source"])
    outputs = [output for cell in written for output in cell.get("outputs", [])]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}


def test_the_tables_of_stabilisers_are_those_of_the_records(monkeypatch):
    monkeypatch.syspath_prepend(DOCS / "measurements" / "stabilisers")
    module, page = (
        tool("measurements/stabilisers/measure.py"),
        (DOCS / "stabilisers.md").read_text(),
    )
    assert module.with_tables(page) == page
    keys = [(r["setting"], r["variant"], r["seed"]) for r in module.read()]
    assert len(keys) == len(set(keys))
