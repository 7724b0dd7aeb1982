"""The command line, checked before anything starts: one line for each mistake."""

from __future__ import annotations

import logging
import re
import shlex

from hydra import compose
from hydra.conf import HydraConf
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from phantomgrad_suite.jobs.compose import check_choice, composing, keys, nearest
from phantomgrad_suite.runs.errors import UserError


def check_overrides(arguments: list[str], root: str = "train") -> None:
    """Compose the configuration once, to report a wrong override in one line.

    Of a sweep, the first value is checked; of a table or suite, its first row. A command line with
    flags of Hydra's own is left to Hydra.

    Raises:
        UserError: an override does not parse, or names an unknown file, group or key.
    """
    if any(argument.startswith("-") for argument in arguments):
        return
    logging.getLogger("hydra").setLevel(logging.ERROR)
    try:
        overrides = OverridesParser.create().parse_overrides(arguments)
    except HydraException as error:
        raise UserError(f"cannot read the overrides: {_first_line(error)}") from error
    single = [line for override in overrides if (line := _first_value(override))]
    for line in single:
        check_choice(*_choice(line))
    with composing():
        try:
            compose(root, [*_first_row(root, single), *single])
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise UserError(_explain(error, root, single)) from error
    GlobalHydra.instance().clear()


def command_line(hydra: HydraConf) -> str:
    """Return the shell command that executes the current run alone."""
    overrides = [
        o for o in hydra.overrides.task if not o.startswith(("cluster", "runtime.cluster"))
    ]
    # A table switches Hydra to multirun; the command is for one of its runs.
    alone = ["hydra.mode=RUN"] if hydra.mode is RunMode.MULTIRUN else []
    return shlex.join(["python", "scripts/train.py", *overrides, *alone])


def _first_value(override: Override) -> str | None:
    """Return an override without its sweep; ``None`` if the first value is not known yet."""
    if not override.is_sweep_override():
        return override.input_line
    if not (override.is_choice_sweep() or override.is_range_sweep()):
        return None
    return f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}"


def _first_row(root: str, overrides: list[str]) -> list[str]:
    """Return the first row of the table or suite in ``overrides``, unless they choose one."""
    lists = [o for o in overrides if o.partition("=")[0] in ("table", "tune", "suite")]
    if not lists or any(o.startswith(("experiment=", "study=")) for o in overrides):
        return []
    try:
        sweeper = compose(root, lists, return_hydra_config=True).hydra.sweeper
    except HydraException:  # a group of another root: reported by the caller
        return []
    rows = {name: str(row) for name, row in (sweeper.get("params") or {}).items()}
    return [
        f"{k}={v.split(',')[0].strip()}" for k, v in rows.items() if k in ("experiment", "study")
    ]


def _choice(override: str) -> tuple[str, str]:
    """Return the group and the file that an override chooses, if its key is a group."""
    key, _, value = override.partition("=")
    return key.lstrip("+~").partition("@")[0], value.strip("'\"")


def _explain(error: Exception, root: str, overrides: list[str]) -> str:
    found = re.search(r"full_key: (\S+)|override '([\w.@/]+)'", str(error))
    if found is None:
        return _first_line(error)
    key, known = found[1] or found[2], _known(root, overrides)
    if key in known and "To append" in str(error):
        return f"{key} has no such entry yet: a plus adds it, +{key}=..."
    parent = key.rpartition(".")[0]
    if "To append" in str(error) and parent in known:
        near = nearest(key, known, f"{root}.yaml")
        return f"there is no setting {key!r}; {near}; +{key}=... adds an argument of {parent}"
    return f"there is no setting {key!r}; {nearest(key, known, f'{root}.yaml')}"


def _known(root: str, overrides: list[str]) -> list[str]:
    """Return all settings, with the choices of ``overrides`` where these can be composed."""
    groups = [o for o in overrides if "." not in o.partition("=")[0]]
    for choices in (groups, []):
        try:
            chosen = compose(root, [*_first_row(root, choices), *choices])
        except (HydraException, OmegaConfBaseException):
            continue
        return list(keys(OmegaConf.to_container(chosen, resolve=False)))
    return []


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
