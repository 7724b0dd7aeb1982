"""Mistakes in a configuration or on a command line, explained in one line."""

import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from hydra import compose
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf

from phantomgrad_suite.jobs.resolvers import composing
from phantomgrad_suite.runs.configs import choices, groups

NAMING = ("experiment", "table", "scale", "tune", "study")


def explain(error: Exception, root: str, arguments: Sequence[str] = ()) -> str:
    """Return an error of Hydra's in one line, with the nearest names that exist.

    These are the settings of ``configs/<root>.yaml`` with the groups chosen by ``arguments``.
    """
    if not str(error) and isinstance(error.__cause__, Exception):  # as of a broken ${...}
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if isinstance(error, MissingConfigException):
        group, _, choice = (error.missing_cfg_file or "").partition("/")
        return f"there is no {group} {choice!r}; {_nearest(choice, choices(group), f'{group}/')}"
    if found := re.match(r"Could not override '([^']+)'", text):
        return unknown_setting(found[1], _known(root, arguments), root)
    if isinstance(error, RecursionError):
        chosen = " ".join(argument for argument in arguments if key_of(argument) in NAMING)
        return f"{chosen}: a file inherits from itself: change its defaults"
    if text.startswith("Error merging override") and error.__cause__:
        return f"{text}: {str(error.__cause__).splitlines()[0]}"
    if text.startswith("Config group override must be"):
        text = next(filter(None, map(_no_choice, arguments)), text)
    return text


def _unreadable(override: str) -> str:
    key, equals, value = override.partition("=")
    if not equals:
        return f"cannot read {override}: an override is <setting>=<value>"
    if any(value.count(a) != value.count(b) for a, b in ("[]", "{}", "()")):
        return f"cannot read {override}: a bracket is not closed"
    quoted = shlex.quote(f'{key}="{value}"')
    return f"cannot read {override}: a value with special characters needs quotes, {quoted}"


def _no_choice(override: str) -> str | None:
    """Return what to choose instead of ``null`` or a number in an override of a group."""
    group, _, value = override.partition("=")
    known = choices(group) if group.isidentifier() else []
    if not known or value in known:
        return None
    listed = ", ".join(known[:8]) + ", ..." * (len(known) > 8)
    return f"{override} is no choice: leave it out, or choose from {listed}"


def unknown_setting(key: str, known: Sequence[str], root: str) -> str:
    """Return that there is no such setting, with the nearest of those that are ``known``."""
    others = (group for group in groups() if group not in (key, *known))
    known = [*known, *(f"{group}=..." for group in others)]
    plus = f"; a plus adds an argument or entry: +{key}=..." if "." in key else ""
    return f"there is no setting {key!r}; {_nearest(key, known, f'{root}.yaml')}{plus}"


def _nearest(wanted: str, known: Sequence[str], where: str) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.3)
    suggestion = f"the nearest are {', '.join(near)}" if near else "no similar name exists"
    return f"{suggestion} (all of them: configs/{where})"


def _known(root: str, arguments: Sequence[str]) -> list[str]:
    """Return all settings, with the choices on the command line where these can be composed."""
    chosen = [a.split(",")[0] for a in arguments if key_of(a).partition("@")[0] in groups()]
    for overrides in (chosen, []):
        with suppress(HydraException), composing():
            return list(_keys(OmegaConf.to_container(compose(root, overrides), resolve=False)))
    return []


def _keys(node: object, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings of a configuration."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")


def key_of(override: str) -> str:
    """Return the setting or group that an override changes."""
    return override.lstrip("+~").partition("=")[0]
