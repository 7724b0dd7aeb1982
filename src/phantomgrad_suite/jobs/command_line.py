"""What the scripts of runs and studies do with a command line."""

import logging
import os
import shlex
import sys
from collections.abc import Callable
from typing import NoReturn

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from phantomgrad_suite.jobs.compose import CONFIGS, explain
from phantomgrad_suite.jobs.job import left_to_others
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)


def run_script(work: Callable[[DictConfig], None], root: str) -> NoReturn:
    """Execute the job of the command line, or each of a table or suite, and exit.

    All jobs are composed before the first one starts, from ``configs/<root>.yaml``; a wrong
    override ends the script with one line. A job that fails does not end the others, and errors
    that several share are logged once.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises its errors, and prints nothing
    logging.getLogger("hydra").setLevel(logging.ERROR)
    left_to_others.clear()
    failures: list[str] = []
    composed = False

    def job(config: DictConfig) -> None:
        nonlocal composed
        composed = True
        try:
            work(config)
        except UserError as error:
            if str(error) not in failures:
                run, message = config.runtime.run, str(error)
                row = str(run.row or config.label.get("row") or "custom")
                if HydraConfig.get().mode is RunMode.MULTIRUN and not message.startswith(row):
                    message = f"{' '.join(filter(None, (row, run.instance)))}: {message}"
                log.error("%s", message)
            failures.append(str(error))

    try:
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=root)(job)()
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if composed:
            raise
        sys.exit(explain(error, root, sys.argv[1:]))
    if left_to_others:
        more = f" and {len(left_to_others) - 1} more" if len(left_to_others) > 1 else ""
        print(f"{left_to_others[0]}{more}: skipped, another process executes it", flush=True)
    sys.exit(1 if failures else 0)


def command_line(hydra: HydraConf) -> str:
    """Return the shell command that executes the current run alone."""
    launcher = ("cluster", "runtime.cluster")
    overrides = [o for o in hydra.overrides.task if not o.startswith(launcher)]
    # A table switches Hydra to multirun; the command is for one of its runs.
    alone = ["hydra.mode=RUN"] if hydra.mode is RunMode.MULTIRUN else []
    return shlex.join(["python", "scripts/train.py", *overrides, *alone])
