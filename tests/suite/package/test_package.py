"""Source distribution and wheel: what they hold, and that the library works from them."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from graph_data import REPOSITORY

USER = (Path(__file__).parent / "user.py").read_text()
TAGGED = """
git init --quiet
git add .
git -c user.name=a -c user.email=a@b.c commit --quiet --no-verify --no-gpg-sign -m all
git tag v1.2.3
"""


def test_library_works_from_the_wheel_of_the_sdist(tmp_path):
    """In a new process, in an empty folder, with nothing of the checkout on the path.

    The version is that of the tag.
    """
    source = tmp_path / "source"  # setuptools builds in the checkout, from what is left there
    shutil.copytree(REPOSITORY / "src", source / "src")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    own = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "SETUPTOOLS_SCM"))}
    own["GIT_CONFIG_GLOBAL"] = os.devnull  # a hook's repository and a user's settings stay out
    subprocess.run(["sh", "-ec", TAGGED], cwd=source, check=True, env=own)
    sdist = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "env": own}
    subprocess.run([sys.executable, "-c", sdist], cwd=source, **quiet)
    (archive,) = tmp_path.glob("phantomgrad-1.2.3.tar.gz")
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(tmp_path))
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(archive)], check=True)
    (path,) = tmp_path.glob("phantomgrad-*.whl")
    installed = tmp_path / "installed"
    zipfile.ZipFile(path).extractall(installed)
    needed = (
        *("phantomgrad/py.typed", "phantomgrad_suite/py.typed", "phantomgrad/models/mdeq.py"),
        *("phantomgrad_suite/data/SHA256SUMS", "phantomgrad_suite/report/catalogue.toml"),
        "hydra_plugins/phantomgrad_launcher.py",
    )
    assert [name for name in needed if not (installed / name).exists()] == []
    code = f"import sys; sys.path.insert(0, {str(installed)!r})\n{USER}"
    code += f"assert phantomgrad.__file__.startswith({str(installed)!r})\n"
    code += "assert phantomgrad.__version__ == '1.2.3'"
    subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, check=True)
