"""Fixtures that execute a composed configuration, or the script, in a new folder."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import runpy
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from graph_data import REPOSITORY

from phantomgrad_suite.runs.records import Record, read_record

if TYPE_CHECKING:
    from omegaconf import DictConfig

SCRIPT = REPOSITORY / "scripts" / "train.py"
STUDY_SCRIPT = REPOSITORY / "scripts" / "study.py"
needs_gloo = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)
# Results are compared bit by bit, which accelerators and other processors do not promise.
ON_CPU = "runtime.trainer.accelerator=cpu"
# What makes the paper's models small; other tests know them in their own sizes.
SMALL_MDEQ = ("model.channels=[8,8]", "model.head_channels=[2,2]", "model.features=8")
SMALL_TRANSFORMER = (
    *("model.width=8", "model.heads=2", "model.inner=16", "model.cutoffs=[20,60]"),
    "++model.shrinkage=2",
)


def composed(
    overrides: list[str], configs: Path = REPOSITORY / "configs", root: str = "train"
) -> DictConfig:
    """Compose a configuration as the script of its root does."""
    # Imported here and below: tests of the library need not wait for Hydra and Lightning.
    from hydra import compose, initialize_config_dir
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict

    import phantomgrad_suite.jobs.compose  # noqa: F401  (registers the resolvers)

    with initialize_config_dir(str(configs), version_base="1.3"):
        config = compose(root, overrides, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    with open_dict(config):
        del config["hydra"]
    return config


def check_line(line: str, root: str = "train") -> None:
    """Compose the first run of a command line; a mistake in it raises an error."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from phantomgrad_suite.jobs.command_line import named_in_full

    first, arguments = [], [named_in_full(a, asked=True) for a in shlex.split(line)]
    for override in OverridesParser.create().parse_overrides(arguments):
        swept = override.is_sweep_override()
        value = next(iter(override.sweep_string_iterator())) if swept else ""
        first.append(f"{override.get_key_element()}={value}" if swept else override.input_line)
    composed(first, root=root)


@dataclass
class Workplace:
    """A working directory for runs, with its own ``runs/``."""

    path: Path
    configs: Path = REPOSITORY / "configs"

    def train(self, *overrides: str) -> Path:
        """Execute a run in this process; return its folder."""
        from phantomgrad_suite.start import train

        config = composed([ON_CPU, *overrides], self.configs)
        train(config)
        return self.path / config.runtime.run.folder

    def record(self, *overrides: str) -> Record:
        """Execute a run and return its record."""
        return read_record(self.train(*overrides) / "record.json")

    def study(self, *overrides: str) -> Path:
        """Execute a study in this process; return its folder."""
        from phantomgrad_suite.start import run_study

        config = composed(list(overrides), self.configs, root="study")
        run_study(config)
        return self.path / config.runtime.run.folder


@pytest.fixture
def own_hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydra as it was before, after the test; its own fixture would look for plugins each time."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    monkeypatch.setattr(GlobalHydra.instance(), "hydra", None)


@pytest.fixture
def workplace(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    float32: None,
    own_hydra: None,
    composing_from_memory: None,
) -> Workplace:
    """An empty folder as the working directory."""
    monkeypatch.chdir(tmp_path)
    _freeze_heap()
    return Workplace(tmp_path)


class WholeRuns:
    """Uninterrupted runs with which tests of a module compare theirs; each is executed once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folders: dict[tuple[str, ...], Path] = {}

    def train(self, workplace: Workplace, *overrides: str) -> Path:
        """Return the folder of the run with these overrides."""
        # What else is of the runtime has no effect on the run, nor on its last checkpoint.
        kept = "runtime.checkpoint.every_n_epochs"
        key = tuple(o for o in overrides if not o.startswith("runtime.") or o.startswith(kept))
        if key not in self._folders:
            runs = self._path / str(len(self._folders))
            self._folders[key] = workplace.train(*overrides, f"runtime.paths.runs={runs}")
        return self._folders[key]


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> WholeRuns:
    """An own folder for them."""
    return WholeRuns(tmp_path_factory.mktemp("whole"))


def _freeze_heap() -> None:
    """Spare each run's garbage collection 0.4 s in the objects of imported modules."""
    import phantomgrad_suite.train  # noqa: F401

    gc.collect()
    gc.freeze()  # each time, as a study thaws them: to count the frozen ones takes longer


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
    """The training script, which leaves the configuration of logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield Script(monkeypatch, capsys)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def study_script(script: Script) -> Script:
    """The script of the studies."""
    return replace(script, path=STUDY_SCRIPT, always=())


class Started:
    """A script in a process forked from one that has imported what runs need."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        script: Path = SCRIPT,
        log: str = "log.txt",
        **environment: str,
    ) -> None:
        multiprocessing.set_forkserver_preload(["phantomgrad_suite.train", "training"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMP_NUM_THREADS", "1")
            forkserver.ensure_running()
        self._log = folder / log
        values = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        fork = multiprocessing.get_context("forkserver")
        settings = [*arguments, ON_CPU] if script == SCRIPT else arguments
        self.process = fork.Process(
            target=_execute, args=(folder, script, settings, self._log, values)
        )
        self.process.start()

    def wait_for(self, found: Callable[[], object]) -> None:
        """Wait until ``found()`` is true, or fail with the process."""
        while not found():
            assert self.process.is_alive(), self._log.read_text()
            time.sleep(0.02)

    def end(self) -> Outcome:
        """Wait for the end of the process; its output and errors are in ``out``."""
        self.process.join()
        return Outcome(int(self.process.exitcode or 0), self._log.read_text(), "")


def _execute(folder: Path, *details: Any) -> None:
    from phantomgrad_suite.cluster.local import _run

    os.chdir(folder)
    _run(*details)


def start_two(folder: Path, *arguments: str) -> tuple[Started, Started]:
    """Start the two processes of a run, in the environment that torchrun makes for them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"},
        **{"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"},
        "TORCHELASTIC_RUN_ID": "test",
    }
    first, second = (
        Started(
            *(folder, *arguments),
            log=f"log{rank}.txt",
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            **common,
        )
        for rank in (0, 1)
    )
    return first, second


def finish_two(folder: Path, *arguments: str) -> str:
    """Finish a run of two processes; return the output of the first one."""
    first, second = (process.end() for process in start_two(folder, *arguments))
    assert (first.code, second.code) == (0, 0), first.out + second.out
    return first.out
