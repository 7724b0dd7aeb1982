"""The shape of the source: who may import whom, and how long a thing may be."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from graph_data import REPOSITORY

SOURCE = REPOSITORY / "src"
FILES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))


def test_imports_go_down_only() -> None:
    """The contracts of pyproject.toml hold."""
    command = Path(sys.executable).parent / "lint-imports"
    if not command.exists():
        pytest.skip("import-linter is not installed (phantomgrad[dev])")
    done = subprocess.run(
        [command, "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_library_imports_torch_alone() -> None:
    """In a new process, the library loads nothing of the experiments."""
    heavy = (
        "phantomgrad_suite torchvision torch._dynamo hydra lightning matplotlib omegaconf scipy "
        "sklearn torch_geometric torchmetrics wandb"
    )
    code = (
        "import sys, phantomgrad, phantomgrad.models\n"
        f"print(*(name for name in {heavy.split()} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    content = path.read_text()
    assert len(content.splitlines()) <= 300
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{path.name}: {node.name} has {length} lines"


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_files_of_tests_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in FILES + TESTS}), ids=lambda p: p.name
)
def test_folders_stay_small(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= 12


def test_status_and_reports_start_without_torch() -> None:
    """This is tested in a new process: the status must not wait for torch."""
    modules = (
        "phantomgrad_suite.status, phantomgrad_suite.export_wandb, phantomgrad_suite.report.command"
    )
    code = f"import sys, {modules}\nprint(*({{'torch', 'hydra', 'lightning'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_scripts_are_glue() -> None:
    for path in sorted((REPOSITORY / "scripts").glob("*.py")):
        assert len(path.read_text().splitlines()) <= 60, path.name
