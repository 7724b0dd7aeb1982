"""What the scripts of runs and studies do with a command line."""

import logging
import os
import re
import shlex
import sys
from argparse import Action, ArgumentParser
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from phantomgrad_suite.jobs.compose import without_launcher
from phantomgrad_suite.jobs.explain import explain, key_of
from phantomgrad_suite.runs.configs import CONFIG_PATH, CONFIGS, listed, prefix
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)

_COMPOSITION_ERRORS = (
    *(HydraException, OmegaConfBaseException, YAMLError),
    *(OSError, RecursionError, UserError, ValueError),
)
_LISTED = {"train": ("experiment", "table", "tune"), "study": ("study",)}
# One of these sets of groups says what is to be run.
_CHOOSING = {
    "train": ({"experiment"}, {"table"}, {"tune"}, {"dataset", "model"}),
    "study": ({"study"},),
}
# With one of these groups, or a list of values, a command has several runs. They share the settings
# of `_SHARED`. With one of `_ASKED`, a single one is shown.
_SEVERAL = {"table", "tune", "cluster"}
_ASKED = {"-h", "--help", "-c", "--cfg", "-i", "--info"}
_PATTERN = re.compile(r"(experiment|study)=([^()]*\*[^()]*)")
_SHARED = re.compile(r"(table|tune|cluster|scale)$|hydra\.|runtime\.(cluster|paths)\b")


def run_script(work: Callable[[DictConfig], None], root: str) -> NoReturn:
    """Execute the job of the command line, or each of several, and exit.

    Prints how to name a row, and exits with 2, if the command line does not say what to run.
    All jobs are composed before the first one starts, from ``configs/<root>.yaml``; a wrong
    override ends the script with one line. A job that fails does not end the others, and errors
    that several share are logged once.
    """
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises its errors, and prints nothing
    logging.getLogger("hydra").setLevel(logging.CRITICAL)
    failures: list[str] = []
    composed = False
    arguments = sys.argv[1:]
    named = set(map(key_of, arguments))
    is_chosen = any(groups <= named for groups in _CHOOSING[root])
    _check_arguments(arguments, root)

    def job(config: DictConfig) -> None:
        nonlocal composed
        if not is_chosen:
            _show_usage(root)
        composed = True
        try:
            work(config)
        except (UserError, ConfigAttributeError, ConfigKeyError) as error:
            deleted = getattr(error, "full_key", None)  # by a tilde
            cause = f"a run needs the setting {deleted}" if deleted else str(error)
            if cause not in failures:
                log.error("%s", _named(cause, config))
            failures.append(cause)

    try:
        sys.argv[1:] = _for_each_row(arguments)
        sys.modules["hydra.main"].get_args_parser = _parser  # type: ignore[attr-defined]
        hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=root)(job)()
    except _COMPOSITION_ERRORS as error:
        if composed:
            raise
        sys.exit(_explained(error, root, arguments))
    sys.exit(1 if failures else 0)


def _for_each_row(arguments: list[str]) -> list[str]:
    """Return the arguments of several runs so that each row, not what they share, is asked.

    Hydra first composes what all runs share, without a row, and refuses there any setting that only
    rows have; it leaves out what is swept, even over one value.
    """
    asked = bool(_ASKED & {*arguments})
    named = [named_in_full(argument, asked) for argument in arguments]
    overrides = {a: _parsed(a) for a in named if "=" in a and not a.startswith("-")}
    several = {"-m", "--multirun"} & {*arguments} or _SEVERAL & {*map(key_of, arguments)}
    several = several or {a for a, override in overrides.items() if override.is_sweep_override()}
    if not several or asked or "hydra.mode=RUN" in arguments:
        return named
    return ["-m", *(_swept(a, overrides[a]) if a in overrides else a for a in named)]


def named_in_full(argument: str, asked: bool) -> str:
    """Return an argument with the names that its pattern has (``study=figure4/*``), or the first.

    Options that ask something show a single run.
    """
    if not (found := _PATTERN.fullmatch(argument)):
        return argument
    names = listed(found[1], found[2])
    return f"{found[1]}={','.join(names[:1] if asked else names)}"


def _parsed(argument: str) -> Override:
    (override,) = OverridesParser.create().parse_overrides([argument])
    return override


def _swept(argument: str, override: Override) -> str:
    shared = _SHARED.match(key_of(argument)) or override.is_delete()
    if shared or override.is_sweep_override() or not (value := override.get_value_element_as_str()):
        return argument
    return f"{override.get_key_element()}=choice({value})"


def _named(message: str, config: DictConfig) -> str:
    """Return a message that names its run where a command has several."""
    hydra, run = HydraConfig.get(), OmegaConf.select(config, "runtime.run") or {}
    choices = hydra.runtime.choices
    row = run.get("row") or choices.get("experiment") or choices.get("study") or "custom"
    if hydra.mode is not RunMode.MULTIRUN or message.startswith(row):
        return message
    return f"{' '.join(filter(None, (row, run.get('instance'))))}: {message}"


def _explained(error: Exception, root: str, arguments: Sequence[str]) -> str:
    text = explain(error, root, arguments)
    if isinstance(error, OSError) and not isinstance(error, HydraException | BrokenPipeError):
        text += "; runtime.paths.runs must be a folder that can be written"
    return text


def _check_arguments(arguments: Sequence[str], root: str) -> None:
    """Exit with a sentence for what Hydra would take for something else."""
    for group in ("table", "experiment", "study"):
        chosen = [a for a in arguments if a.lstrip("+").startswith(f"{group}=")]
        if len(chosen) > 1:  # Hydra would take the last one
            several = "" if group == "table" else f", or several as {group}=<name>,<name>"
            sys.exit(f"{' '.join(chosen)}: a command takes one {group}{several}")
    for argument in arguments:
        if re.match(r"(--config-dir|-cd)\b|\+*hydra\.searchpath=", argument):
            sys.exit(
                f"{argument.partition('=')[0]} would reach neither the jobs of this command nor "
                f"status and report: set {CONFIG_PATH}=<folder>, which all of them read"
            )
        if re.match(r"[^=]*=['\"]?~(/|$)", argument):
            sys.exit(f"{argument}: ~ is not expanded here: write $HOME, or the whole path")
    if not arguments:
        _show_usage(root)


def _show_usage(root: str) -> NoReturn:
    text = OmegaConf.load(CONFIGS / f"{root}.yaml").hydra.help.header
    folders = ", ".join(f"configs/{group}" for group in _LISTED[root])
    print(f"{text}\nThe files of {folders} are what can be named; all settings: --help")
    sys.exit(2)


def _parser() -> ArgumentParser:
    """Return Hydra's parser of a command line, without abbreviations of its options.

    Hydra 1.3 passes a help text that is no string, which Python 3.14 refuses when the option is
    added (https://github.com/facebookresearch/hydra/issues/3121): it is added without one.
    """
    add = ArgumentParser.add_argument

    def add_unchecked(parser: ArgumentParser, *names: Any, **options: Any) -> Action:
        text = options.pop("help", None)
        action = add(parser, *names, **options)
        action.help = text
        return action

    ArgumentParser.add_argument = add_unchecked  # type: ignore[method-assign, assignment]
    try:
        parser = get_args_parser()
    finally:
        ArgumentParser.add_argument = add  # type: ignore[method-assign]
    parser.allow_abbrev = False  # --experiment would be --experimental-rerun
    parser.error = _wrong_option  # type: ignore[method-assign]
    return parser


def _wrong_option(message: str) -> NoReturn:
    found = re.search(r"unrecognized arguments: --([\w.@]+)", message)
    if not found:
        sys.exit(f"{message}; --hydra-help lists the options")
    value = re.search(rf"--{found[1]}[= ](\S+)", " ".join(sys.argv))
    sys.exit(
        f"there is no option --{found[1]}: settings have no dashes, as {found[1]}="
        f"{value[1] if value else '<value>'}; --hydra-help lists the options"
    )


def command_line(hydra: HydraConf) -> str:
    """Return the shell command that executes the current run alone."""
    overrides = without_launcher(hydra.overrides.task)
    # A table switches Hydra to multirun; the command is for one of its runs.
    alone = ["hydra.mode=RUN"] if hydra.mode is RunMode.MULTIRUN else []
    return shlex.join(
        [*prefix(), "python", f"scripts/{hydra.job.config_name}.py", *overrides, *alone]
    )
