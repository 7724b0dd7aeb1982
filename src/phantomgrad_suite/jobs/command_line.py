"""What the scripts of runs and studies do with a command line."""

import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from phantomgrad_suite.jobs.compose import explain, help_text, without_launcher
from phantomgrad_suite.runs.configs import CONFIG_PATH, CONFIGS, prefix
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)

_COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, YAMLError)


def run_script(work: Callable[[DictConfig], None], root: str) -> NoReturn:
    """Execute the job of the command line, or each of a table or suite, and exit.

    All jobs are composed before the first one starts, from ``configs/<root>.yaml``; a wrong
    override ends the script with one line. A job that fails does not end the others, and errors
    that several share are logged once.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises its errors, and prints nothing
    logging.getLogger("hydra").setLevel(logging.ERROR)
    failures: list[str] = []
    composed = False
    lists = [a for a in sys.argv[1:] if re.match(r"\+?(table|suite)=", a)]
    if len(lists) > 1:  # Hydra would take the last one
        sys.exit(f"{' '.join(lists)}: a command runs one table or suite")

    for argument in sys.argv[1:]:
        if re.match(r"(--config-dir|-cd)\b|\+*hydra\.searchpath=", argument):
            sys.exit(
                f"{argument.partition('=')[0]} would reach neither the jobs of this command nor "
                f"status and report: set {CONFIG_PATH}=<folder>, which all of them read"
            )

    def job(config: DictConfig) -> None:
        nonlocal composed
        composed = True
        try:
            work(config)
        except (UserError, ConfigAttributeError, ConfigKeyError) as error:
            deleted = getattr(error, "full_key", None)  # by a tilde
            cause = f"a run needs the setting {deleted}" if deleted else str(error)
            if cause not in failures:
                run, message = config.runtime.run, cause
                choices = HydraConfig.get().runtime.choices
                row = run.row or choices.get("experiment") or choices.get("study") or "custom"
                if HydraConfig.get().mode is RunMode.MULTIRUN and not message.startswith(row):
                    message = f"{' '.join(filter(None, (row, run.instance)))}: {message}"
                log.error("%s", message)
            failures.append(cause)

    try:
        _run(job, root)
    except (*_COMPOSITION_ERRORS, OSError, UserError, ValueError) as error:
        if composed:
            raise
        sys.exit(_explained(error, root))
    sys.exit(1 if failures else 0)


def _run(job: Callable[[DictConfig], None], root: str) -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(help_text(root, [a for a in sys.argv[1:] if not a.startswith("-")]))
    else:
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=root)(job)()


def _named(message: str, config: DictConfig) -> str:
    """Return a message that names its run where a command has several."""
    hydra, run = HydraConfig.get(), config.runtime.run
    choices = hydra.runtime.choices
    row = run.row or choices.get("experiment") or choices.get("study") or "custom"
    if hydra.mode is not RunMode.MULTIRUN or message.startswith(row):
        return message
    return f"{' '.join(filter(None, (row, run.instance)))}: {message}"


def _explained(error: Exception, root: str) -> str:
    text = explain(error, root, sys.argv[1:])
    if isinstance(error, OSError) and not isinstance(error, HydraException | BrokenPipeError):
        text += "; runtime.paths.runs must be a folder that can be written"
    return text


def _check_arguments(arguments: Sequence[str]) -> None:
    """Exit with one line for what Hydra would accept and do otherwise than meant."""
    lists = [a for a in arguments if re.match(r"\+?(table|suite)=", a)]
    if len(lists) > 1:  # Hydra would take the last one
        sys.exit(f"{' '.join(lists)}: a command runs one table or suite")
    folders = [a for a in arguments if re.match(r"(--config-dir|-cd)\b|\+*hydra\.searchpath=", a)]
    if folders:
        sys.exit(
            f"{folders[0].partition('=')[0]} would reach neither the jobs of this command nor "
            f"status and report: set {CONFIG_PATH}=<folder>, which all of them read"
        )


def command_line(hydra: HydraConf) -> str:
    """Return the shell command that executes the current run alone."""
    overrides = without_launcher(hydra.overrides.task)
    # A table switches Hydra to multirun; the command is for one of its runs.
    alone = ["hydra.mode=RUN"] if hydra.mode is RunMode.MULTIRUN else []
    return shlex.join(
        [*prefix(), "python", f"scripts/{hydra.job.config_name}.py", *overrides, *alone]
    )
