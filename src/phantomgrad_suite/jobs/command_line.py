"""What is typed on a command line, checked before anything starts: one line for each mistake."""

from __future__ import annotations

import difflib
import logging
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.conf import HydraConf
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from phantomgrad_suite.runs.errors import UserError

# For the name of what is done with a list of rows.
OmegaConf.register_new_resolver("joined", "/".join, replace=True)

CONFIGS = Path(__file__).resolve().parents[3] / "configs"

# The groups of lists of each root, and what a list lists.
_LISTS = {"train": (("table", "tune"), "experiment"), "study": (("suite",), "study")}


def check_overrides(arguments: list[str], root: str = "train") -> None:
    """Compose the configuration once, to say in one line what is wrong with the overrides.

    A sweep is judged by its first value, a table or suite by its first row. A command line with
    flags of Hydra's own passes; it is Hydra's to judge.

    Raises:
        UserError: an override does not parse, or names an unknown file, group or key.
    """
    if any(argument.startswith("-") for argument in arguments):
        return
    try:
        overrides = OverridesParser.create().parse_overrides(arguments)
    except HydraException as error:
        raise UserError(f"cannot read the overrides: {_first_line(error)}") from error
    single = [line for o in overrides if (line := _single(o))]
    for override in single:
        check_choice(override)
    single += _first_row(single, root)
    logging.getLogger("hydra").setLevel(logging.ERROR)
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        try:
            compose(root, single)
        except (HydraException, OmegaConfBaseException, ValueError) as error:
            raise UserError(_explain(error, root, single)) from error
    GlobalHydra.instance().clear()


def command_line(hydra: HydraConf) -> str:
    """Return the command that does the run at hand, alone, as it is typed in a shell.

    Args:
        hydra: the ``hydra`` part of the configuration.
    """
    overrides = [o for o in hydra.overrides.task if not o.startswith("cluster")]
    # A table or a search switches Hydra to several runs, and may set more; this is one of them.
    alone = ["hydra.mode=RUN"] if hydra.mode is RunMode.MULTIRUN else []
    return shlex.join(["python", "scripts/train.py", *overrides, *alone])


def names(group: str) -> list[str]:
    """Return the names of the files of a configuration group, nested ones by their path."""
    folder = CONFIGS / group
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))


def _single(override: Override) -> str | None:
    """Return the override, of a sweep with its first value; nothing where that is not known."""
    if not override.is_sweep_override():
        return override.input_line
    if not (override.is_choice_sweep() or override.is_range_sweep()):
        return None
    return f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}"


def _first_row(overrides: list[str], root: str) -> list[str]:
    """Return the choice of the first row of the list, where a list and no row is chosen."""
    if root not in _LISTS:
        return []
    groups, member = _LISTS[root]
    chosen = dict(override.partition("=")[::2] for override in overrides)
    rows = ""
    for group in groups:
        if chosen.get(group) not in (None, "", "null") and member not in chosen:
            listed = OmegaConf.load(CONFIGS / group / f"{chosen[group]}.yaml")
            rows = OmegaConf.select(listed, f"hydra.sweeper.params.{member}", default=rows)
    return [f"{member}={row.strip()}" for row in rows.split(",")[:1] if row]


def check_choice(override: str) -> None:
    """Raise if ``override`` chooses a file that its group does not have."""
    group, value = _group(override), override.partition("=")[2].strip("'\"")
    if not (CONFIGS / group).is_dir() or value in ("", "null", *names(group)):
        return
    raise UserError(f"there is no {group} {value!r}; {nearest(value, names(group), f'{group}/')}")


def _group(override: str) -> str:
    """Return the group that ``override`` chooses from, if it does."""
    return override.lstrip("+~").partition("=")[0].partition("@")[0]


def _explain(error: Exception, root: str, overrides: Iterable[str]) -> str:
    key = re.search(r"full_key: (\S+)", str(error)) or re.search(
        r"override '([\w.@/]+)'", str(error)
    )
    if key is None:
        return _first_line(error)
    choices = [override for override in overrides if (CONFIGS / _group(override)).is_dir()]
    try:
        chosen = compose(root, choices)
    except (HydraException, OmegaConfBaseException):  # a group of another root, for example
        chosen = compose(root)
    known = _keys(OmegaConf.to_container(chosen, resolve=False))
    if key[1] in known and "To append" in str(error):
        return f"{key[1]} has no such entry yet: a plus adds it, +{key[1]}=..."
    return f"there is no setting {key[1]!r}; {nearest(key[1], known, f'{root}.yaml')}"


def nearest(wanted: str, known: Iterable[str], where: str) -> str:
    """Return which of what is ``known`` a misspelt name may mean, and where all of it stands."""
    near = difflib.get_close_matches(wanted, list(known), n=3, cutoff=0.3)
    suggestion = f"the nearest are {', '.join(near)}" if near else "nothing is like it"
    return f"{suggestion} (all of them: {CONFIGS.name}/{where})"


def _keys(node: object, prefix: str = "") -> list[str]:
    if not isinstance(node, dict):
        return []
    found = []
    for key, value in node.items():
        found += [f"{prefix}{key}", *_keys(value, f"{prefix}{key}.")]
    return found


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
