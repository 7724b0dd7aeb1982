"""Hydra configurations: composed by name, resolved, identified; mistakes explained in one line."""

import difflib
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from textwrap import indent
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError

from phantomgrad_suite.jobs.types import check_types
from phantomgrad_suite.runs.configs import CONFIGS, choices, find, folders
from phantomgrad_suite.runs.errors import SettingError, UserError
from phantomgrad_suite.runs.identity import Identity, identify, split_row

_NAMING = ("experiment", "table", "scale", "tune", "study", "suite")
_TOP_LEVEL = {  # the settings of each root; a composition would take 0.1 s of every command
    "train": (
        *("seed", "matmul_precision", "nonfinite", "measure", "label", "runtime", "dataset"),
        *("model", "solver", "adjoint", "gradient", "task", "optimizer", "schedule", "trainer"),
    ),
    "study": ("seed", "device", "threads", "label", "runtime", "setting"),
}
_SECTIONS = ("measure", "runtime.dataset", "runtime.trainer", "runtime.callbacks", "runtime.paths")
_LABEL = {"row": str | None, "scale": str | None, "reduced": list[str], "varied": list[str]}
_REFERENCE = re.compile(r"\$\{(?!label|runtime)[\w.]+\}")  # to what determines the result
_METHODS = {
    "BackpropThroughSolver": "BPTT",
    "ImplicitGradient": "Implicit",
    "NeumannPhantomGradient": "NPG",
    "UnrolledPhantomGradient": "UPG",
}


def _method(*, _root_: DictConfig) -> str:
    """Return how tables name the gradient of a run: ``Implicit``, ``JR + UPG A(5, 0.8)``."""
    gradient = _root_.gradient
    kind = str(gradient._target_).rpartition(".")[2]
    name, steps, damping = _METHODS.get(kind, kind), gradient.get("steps"), gradient.get("damping")
    if (name, steps, damping) == ("UPG", 1, 1.0):
        name = "One-step"
    elif steps is not None:
        name += f" A({steps}, {damping if isinstance(damping, float | int) else 'adaptive'})"
    return f"JR + {name}" if _root_.task.get("jacobian") else name


def _scaled(value: float, at: int, now: int) -> float:
    """Return a setting that grows with another: it is ``value`` where the other one is ``at``.

    So learning rates follow batch sizes (the linear rule), and memories the length of segments.
    """
    return value * now // at if isinstance(value, int) else value * now / at


def _batch(*, _root_: DictConfig) -> int:
    """Return the batch size of all processes together, as far as their number is known."""
    numbers = (_root_.trainer.get(name, 1) for name in ("devices", "num_nodes"))
    return math.prod((_root_.dataset.batch_size, *(n for n in numbers if isinstance(n, int))))


OmegaConf.register_new_resolver("batch", _batch, replace=True)
OmegaConf.register_new_resolver("joined", "/".join, replace=True)
OmegaConf.register_new_resolver("scaled", _scaled, replace=True)
OmegaConf.register_new_resolver("method", _method, replace=True)


def composing() -> AbstractContextManager[Any]:
    """Return a context for ``hydra.compose``, inside a running Hydra application or outside."""
    if GlobalHydra.instance().is_initialized():
        return nullcontext()
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    folder = next((source.path for source in sources if source.provider == "main"), str(CONFIGS))
    return initialize_config_dir(folder, version_base="1.3")


def compose_row(row: str) -> DictConfig:
    """Return the configuration of an experiment, as ``scripts/train.py`` composes it.

    ``cpu/table1/implicit`` is ``table1/implicit`` with ``scale=cpu``.
    """
    scale, name = split_row(row)
    with composing():
        try:
            chosen = [f"experiment={name}", *([f"scale={scale}"] if scale else [])]
            config = compose("train", chosen, return_hydra_config=True)
        except HydraException as error:
            raise UserError(explain(error, "train")) from error
    _check_scale(scale, config.hydra.runtime.choices["model"])
    with open_dict(config):
        del config["hydra"]
    return config


def _check_scale(scale: str | None, model: str | None) -> None:
    if scale and not find(overlay := f"scale/{scale}/{model}", folders()):
        raise UserError(f"there is no scale {scale!r} of {model}: no configs/{overlay}.yaml")


def identity_of(config: DictConfig) -> Identity:
    """Return the identity of a configuration that Hydra has composed.

    Its row is composed alone, from those overrides that name it: the experiment or study, the table
    that lists it, and the settings that the table varies (``label.varied``). Hydra's own part is
    in ``HydraConfig``, not in ``config``.
    """
    hydra = HydraConfig.get()
    root = str(hydra.job.config_name)
    for key in ("label", "runtime", *_SECTIONS):
        if not isinstance(found := OmegaConf.select(config, key, default={}), DictConfig | dict):
            raise SettingError(f"{key} must be a mapping, got {found!r}")
    resolved = recorded(config)
    named = re.findall(r"\$\{(\w+)", str(OmegaConf.to_container(config, resolve=False)))
    for key in resolved:  # Hydra accepts any key from a file or with a plus
        if key not in (*_TOP_LEVEL[root], *named):
            if isinstance(resolved[key], dict) and key in _groups():
                raise UserError(f"the file of {key}=... must start with `# @package _global_`")
            raise UserError(_unknown(key, _TOP_LEVEL[root], root))
    for key in _TOP_LEVEL[root]:  # ... and deletes any with a tilde
        if key not in resolved:
            raise UserError(f"a run needs {key!r}: leave out ~{key}")
    check_types(resolved["label"], "label", _LABEL)
    _check_scale(resolved["label"].get("scale"), hydra.runtime.choices.get("model"))
    if resolved["label"]["row"] is None:
        return identify(resolved, None)
    naming = {*_NAMING, *resolved["label"]["varied"]}
    overrides = without_launcher(hydra.overrides.task)
    chosen = [o for o in overrides if key_of(o) in naming]
    others = {k for k in map(key_of, overrides) if not k.startswith("runtime.")} - naming
    if others <= {"seed", "dataset.fold", "logger"}:
        return identify(resolved, resolved)  # the row as its file has it
    sources = tuple(source.path for source in hydra.runtime.config_sources)
    return identify(resolved, _decisive(root, tuple(chosen), sources))


@cache  # a table with a changed setting asks for each of its runs
def _decisive(root: str, overrides: tuple[str, ...], sources: tuple[str, ...]) -> dict[str, Any]:
    """Return what identifies a composition from ``sources``, those of the running application."""
    with composing():
        row = compose(root, list(overrides))
    # Names in `label` and `runtime` refer to the running application, and identify nothing.
    kept = [str(key) for key in row if key not in ("label", "runtime")]
    return recorded(OmegaConf.masked_copy(row, kept))


def without_launcher(overrides: Sequence[str]) -> list[str]:
    """Return the overrides of one run alone, without those on how runs are launched."""
    return [o for o in overrides if not re.match(r"(runtime\.)?cluster\b", key_of(o))]


def recorded(config: DictConfig) -> dict[str, Any]:
    """Return what records have: values resolved, but every section in one place.

    What refers to another section (``model.gradient``) stays a reference. ``paper`` and ``table``
    belong to the file of a row or table, not to what inherits from it.
    """
    raw: Any = OmegaConf.to_container(config, resolve=False)
    return {
        key: value if key in ("label", "runtime") else _referring(raw[key], value)
        for key, value in as_dict(config).items()
        if not (key in ("paper", "table") and isinstance(value, dict))
    }


def _referring(raw: Any, resolved: Any) -> Any:
    if not isinstance(raw, dict):
        return resolved
    return {
        key: raw[key]
        if isinstance(value, dict) and _REFERENCE.fullmatch(str(raw[key]))
        else _referring(raw[key], value)
        for key, value in resolved.items()
    }


def as_dict(config: DictConfig) -> dict[str, Any]:
    """Return the configuration with every interpolation resolved."""
    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        key, reason = error.full_key, str(error).strip().splitlines()[0]
        raise UserError(
            f"{key} cannot be resolved ({reason}): set {key}, or what it refers to, to a value"
        ) from error


def help_text(root: str, arguments: Sequence[str]) -> str:
    """Return what ``--help`` prints: examples, the choices of every group, and all settings.

    Hydra's own takes a second to list the groups.
    """
    with composing():
        config = compose(root, list(arguments), return_hydra_config=True)
    header = config.hydra.help.header
    with open_dict(config):
        del config["hydra"]
    groups = "\n".join(f"  {group}: {', '.join(choices(group))}" for group in _groups())
    settings = indent(OmegaConf.to_yaml(config), "  ")
    return f"{header}\nGroups of settings (group=choice):\n{groups}\n\nSettings:\n{settings}"


def explain(error: Exception, root: str, arguments: Sequence[str] = ()) -> str:
    """Return an error of Hydra's in one line, with the nearest names that exist.

    These are the settings of ``configs/<root>.yaml`` with the groups chosen by ``arguments``.
    """
    if not str(error) and isinstance(error.__cause__, Exception):  # as of a broken ${...}
        error = error.__cause__
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if isinstance(error, MissingConfigException):
        group, _, choice = (error.missing_cfg_file or "").partition("/")
        return f"there is no {group} {choice!r}; {_nearest(choice, choices(group), f'{group}/')}"
    if found := re.match(r"Could not override '([^']+)'", first):
        return _unknown(found[1], _known(root, arguments), root)
    return _simple(error, arguments) or " ".join(str(error).split()) or first


def _simple(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return an error in a configuration file, or in the choice of one, in one line."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark:
        mark = error.problem_mark
        return f"{mark.name}, line {mark.line + 1}: {error.problem} (YAML indents by spaces)"
    if isinstance(error, RecursionError):
        chosen = " ".join(argument for argument in arguments if key_of(argument) in _NAMING)
        return f"{chosen}: a file inherits from itself: change its defaults"
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return f"{error.full_key} cannot be read: {str(error).splitlines()[0]}"
    if str(error).startswith("Error merging override") and error.__cause__:
        return f"{error}: {str(error.__cause__).splitlines()[0]}"
    if str(error).startswith("Config group override must be"):
        return next(filter(None, map(_no_choice, arguments)), None)
    return None


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


def _unknown(key: str, known: Sequence[str], root: str) -> str:
    groups = (group for group in _groups() if group not in (key, *known))
    known = [*known, *(f"{group}=..." for group in groups)]
    plus = f"; a plus adds an argument or entry: +{key}=..." if "." in key else ""
    return f"there is no setting {key!r}; {_nearest(key, known, f'{root}.yaml')}{plus}"


def _nearest(wanted: str, known: Sequence[str], where: str) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.3)
    suggestion = f"the nearest are {', '.join(near)}" if near else "no similar name exists"
    return f"{suggestion} (all of them: configs/{where})"


def _known(root: str, arguments: Sequence[str]) -> list[str]:
    """Return all settings, with the choices on the command line where these can be composed."""
    chosen = [a.split(",")[0] for a in arguments if key_of(a).partition("@")[0] in _groups()]
    for overrides in (chosen, []):
        with suppress(HydraException), composing():
            return list(_keys(OmegaConf.to_container(compose(root, overrides), resolve=False)))
    return []


def _groups() -> list[str]:
    """Return the names of all configuration groups."""
    return sorted({path.name for place in folders() for path in place.iterdir() if path.is_dir()})


def _keys(node: object, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings of a configuration."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")


def key_of(override: str) -> str:
    """Return the setting or group that an override changes."""
    return override.lstrip("+~").partition("=")[0]
