"""The README's example runs as it stands."""

import re
from pathlib import Path

import torch

README = Path(__file__).parents[2] / "README.md"


def test_the_example_of_the_readme_runs():
    """The Python block trains a DEQ: it converges, and every weight gets a gradient."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    names: dict = {}
    torch.manual_seed(0)
    exec(compile(code, "README.md", "exec"), names)
    assert bool(names["solution"].converged.all())
    assert all(p.grad is not None and p.grad.norm() > 0 for p in names["layer"].parameters())


def test_the_commands_of_the_readme_exist():
    """Every make target and every linked file of the README is there."""
    text = README.read_text()
    targets = re.findall(r"^([a-z0-9-]+):", (README.parent / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`?make ([a-z0-9-]+)", text)) <= set(targets)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("http")]
    assert links
    assert all((README.parent / link).exists() for link in links)
