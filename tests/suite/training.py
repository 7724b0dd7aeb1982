"""Fixtures that execute a composed configuration, or the script, in a new folder."""

from __future__ import annotations

import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from graph_data import REPOSITORY

from phantomgrad_suite.runs.records import Record, read_record

if TYPE_CHECKING:
    from omegaconf import DictConfig

SCRIPT = REPOSITORY / "scripts" / "train.py"
STUDY_SCRIPT = REPOSITORY / "scripts" / "study.py"
# Results are compared bit by bit, which accelerators and other processors do not promise.
ON_CPU = "runtime.trainer.accelerator=cpu"


def composed(
    overrides: list[str], configs: Path = REPOSITORY / "configs", root: str = "train"
) -> DictConfig:
    """Compose a configuration as the script of its root does."""
    # Imported here and below: tests of the library need not wait for Hydra and Lightning.
    from hydra import compose, initialize_config_dir
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict

    with initialize_config_dir(str(configs), version_base="1.3"):
        config = compose(root, overrides, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    return config


def check_line(line: str, root: str = "train") -> None:
    """Compose the first run of a command line; a mistake in it raises an error."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    first = []
    for override in OverridesParser.create().parse_overrides(line.split()):
        swept = override.is_sweep_override()
        value = next(iter(override.sweep_string_iterator())) if swept else ""
        first.append(f"{override.get_key_element()}={value}" if swept else override.input_line)
    composed(first, root=root)


@dataclass
class Workplace:
    """A working directory for runs, with its own ``runs/`` and ``results/records/``."""

    path: Path
    configs: Path = REPOSITORY / "configs"

    def train(self, *overrides: str) -> Path:
        """Execute a run in this process; return its folder."""
        from phantomgrad_suite.train import train

        config = composed([ON_CPU, *overrides], self.configs)
        train(config)
        return self.path / config.runtime.run.folder

    def record(self, *overrides: str) -> Record:
        """Execute a run and return its record."""
        return read_record(self.train(*overrides) / "record.json")

    def study(self, *overrides: str) -> Path:
        """Execute a study in this process; return its folder."""
        from phantomgrad_suite.study import run_study

        config = composed(list(overrides), self.configs, root="study")
        run_study(config)
        return self.path / config.runtime.run.folder


@pytest.fixture
def workplace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, float32: None, hydra_restore_singletons: None
) -> Workplace:
    """An empty folder as the working directory."""
    monkeypatch.chdir(tmp_path)
    return Workplace(tmp_path)


@dataclass
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@dataclass
class Script:
    """A script with arguments, in this process."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    path: Path = SCRIPT
    always: tuple[str, ...] = (ON_CPU,)

    def __call__(self, *arguments: str) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", [str(self.path), *arguments, *self.always])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(self.path), run_name="__main__")
        captured = self.capsys.readouterr()
        code = end.value.code
        if isinstance(code, str):  # sys.exit(text) prints it and exits with 1
            return Outcome(1, captured.out, captured.err + code + "\n")
        return Outcome(int(code or 0), captured.out, captured.err)


@pytest.fixture
def script(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Script]:
    """The training script."""
    with _own_logging():
        yield Script(monkeypatch, capsys)


@pytest.fixture
def study_script(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Script]:
    """The script of the studies."""
    with _own_logging():
        yield Script(monkeypatch, capsys, STUDY_SCRIPT, ())


@contextmanager
def _own_logging() -> Iterator[None]:
    """Restore the configuration of logging."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start the training script as a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *arguments, ON_CPU],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
