"""Source distribution and wheels: what they hold, and that library and commands work from them."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from graph_data import REPOSITORY

USER = (Path(__file__).parent / "user.py").read_text()
TAGGED = """
git init --quiet
git add .
git -c user.name=a -c user.email=a@b.c commit --quiet --no-verify --no-gpg-sign -m all
git tag v1.2.3
"""
# A hook's repository, a user's settings and the packages of the checkout stay out.
OWN = {
    k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "SETUPTOOLS_SCM", "PYTHON"))
}
OWN["GIT_CONFIG_GLOBAL"] = os.devnull


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A tagged copy of the checkout: setuptools builds in the folder, from what is left there."""
    source = tmp_path_factory.mktemp("checkout")
    for name in ("src", "suite", "configs", "scripts", "results/tables"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("build"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    subprocess.run(["sh", "-ec", TAGGED], cwd=source, check=True, env=OWN)
    return source


def build(project, kind, folder):
    """Build a source distribution or a wheel of a project in a folder; return its file."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "env": OWN}
    subprocess.run([sys.executable, "-c", code], cwd=project, **quiet)
    (found,) = folder.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return found


def install(project, folder):
    """Unpack the wheel of a project; return the names at its top."""
    wheel = build(project, "wheel", folder.parent)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        names = {name.partition("/")[0] for name in archive.namelist()}
    wheel.unlink()
    return {name for name in names if not name.endswith(".dist-info")}


def run(folder, code, *arguments):
    """Execute ``code`` in an empty folder, with nothing of the checkout on the path."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"
    command = [sys.executable, "-I", "-c", code, *arguments]
    (folder.parent / "empty").mkdir(exist_ok=True)
    return subprocess.run(
        command, cwd=folder.parent / "empty", check=True, env=OWN, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def installed(checkout, tmp_path_factory):
    """The library from the wheel of its source distribution, and the suite from its wheel."""
    folder = tmp_path_factory.mktemp("installed") / "packages"
    source = build(checkout, "sdist", folder.parent)
    assert source.name == "phantomgrad-1.2.3.tar.gz"
    shutil.unpack_archive(source, folder.parent, filter="data")
    assert install(folder.parent / "phantomgrad-1.2.3", folder) == {"phantomgrad"}
    suite = {"phantomgrad_suite", "phantomgrad_reasoners", "hydra_plugins"}
    assert install(checkout / "suite", folder) == suite
    return folder


def test_library_and_commands_work_in_any_folder(installed):
    assert (installed / "phantomgrad" / "py.typed").exists()
    run(
        installed,
        f"{USER}\nassert phantomgrad.__file__.startswith({str(installed)!r})\n"
        "assert phantomgrad.__version__ == '1.2.3'",
    )
    command = "sys.argv[0] = 'phantomgrad'; from phantomgrad_suite.main import main; main()"
    listed = run(installed, command, "train", "table=reasoning_few", "cluster=list")
    assert "experiment=reasoning/puzzles100_j7" in listed
    assert f"{installed}/phantomgrad_suite/scripts/train.py" in listed
