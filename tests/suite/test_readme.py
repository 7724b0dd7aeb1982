"""README and docs: every command, link and experiment in them exists."""

import re
from pathlib import Path

import pytest
from training import check_line

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "results/README.md")),
    *(ROOT / "results" / name for name in ("claims.md", "history.md", "weights/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.usefixtures("composing_from_memory")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + "/" + page.name)
def test_commands_and_links_exist(page):
    text = page.read_text()
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", text, re.MULTILINE)) <= set(targets)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert all((page.parent / link).exists() for link in links)
    for script in set(re.findall(r"python (scripts/\w+\.py)", text)):
        assert (ROOT / script).exists()
    for root, line in re.findall(r"^python scripts/(train|study)\.py ([^#|\n]+)", text, re.M):
        if "mine" not in line:
            check_line(line, root)
