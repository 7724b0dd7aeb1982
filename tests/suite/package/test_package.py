"""Source distribution and wheel: what they hold, and that the library works from them."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from graph_data import REPOSITORY

USER = """
import phantomgrad
from torch import Tensor, nn, ones, tanh

class Cell(nn.Module):
    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        return tanh(z / 2 + x)

gradient = phantomgrad.UnrolledPhantomGradient(2, 0.5)
layer = phantomgrad.DEQ(Cell(), phantomgrad.FixedPoint(), gradient)
assert layer(ones(2, 3)).solution.converged.all()
"""


def test_library_works_from_the_wheel_of_the_sdist(tmp_path: Path) -> None:
    """In a new process, in an empty folder, with nothing of the checkout on the path."""
    source = tmp_path / "source"  # setuptools builds in the checkout, from what is left there
    shutil.copytree(REPOSITORY / "src", source / "src")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    sdist = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", sdist], cwd=source, check=True, stdout=subprocess.DEVNULL)
    (archive,) = tmp_path.glob("phantomgrad-*.tar.gz")
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(tmp_path))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(archive)], check=True)
    (path,) = tmp_path.glob("phantomgrad-*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(path).extractall(installed)
    needed = (
        *("phantomgrad/py.typed", "phantomgrad_suite/py.typed", "phantomgrad/models/mdeq/cell.py"),
        *("phantomgrad_suite/data/SHA256SUMS", "phantomgrad_suite/report/catalogue.toml"),
        "hydra_plugins/phantomgrad_launcher.py",
    )
    assert [name for name in needed if not (installed / name).exists()] == []
    code = f"import sys; sys.path.insert(0, {str(installed)!r})\n{USER}"
    code += f"assert phantomgrad.__file__.startswith({str(installed)!r})"
    subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, check=True)
