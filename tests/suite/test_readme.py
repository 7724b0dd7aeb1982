"""README and docs: the example runs, and every command, link and experiment in them exists."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    README,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "results/README.md")),
    *(ROOT / "results" / name for name in ("claims.md", "weights/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_the_example_of_the_readme_trains_a_converging_deq():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    names = {}
    torch.manual_seed(0)
    exec(compile(code, "README.md", "exec"), names)
    assert bool(names["solution"].converged.all())
    assert all(p.grad is not None and p.grad.norm() > 0 for p in names["layer"].parameters())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_commands_and_links_exist(page):
    text = page.read_text()
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", text, re.MULTILINE)) <= set(targets)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert all((page.parent / link).exists() for link in links)
    for script in set(re.findall(r"python (scripts/\w+\.py)", text)):
        assert (ROOT / script).exists()


@pytest.mark.usefixtures("composing_from_memory")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_command_lines_compose(page):
    from training import check_line

    for root, line in re.findall(
        r"^python scripts/(train|study)\.py ([^#|\n]+)", page.read_text(), re.M
    ):
        if "mine" not in line:
            check_line(line, root)
