"""Hydra configurations: composed by name, resolved, identified."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from phantomgrad_suite.jobs.explain import NAMING, explain, key_of, unknown_setting
from phantomgrad_suite.jobs.resolvers import composing
from phantomgrad_suite.jobs.types import check_types
from phantomgrad_suite.runs.configs import find, groups
from phantomgrad_suite.runs.errors import SettingError, UserError
from phantomgrad_suite.runs.identity import Identity, identify, split_row

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
    if scale and not find(overlay := f"scale/{scale}/{model}"):
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
            if isinstance(resolved[key], dict) and key in groups():
                raise UserError(f"the file of {key}=... must start with `# @package _global_`")
            raise UserError(unknown_setting(key, _TOP_LEVEL[root], root))
    for key in _TOP_LEVEL[root]:  # ... and deletes any with a tilde
        if key not in resolved:
            raise UserError(f"a run needs {key!r}: leave out ~{key}")
    check_types(resolved["label"], "label", _LABEL)
    _check_scale(resolved["label"].get("scale"), hydra.runtime.choices.get("model"))
    if resolved["label"]["row"] is None:
        return identify(resolved, None)
    naming = {*NAMING, *resolved["label"]["varied"]}
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
        return decisive_settings(compose(root, list(overrides)))


def decisive_settings(config: DictConfig) -> dict[str, Any]:
    """Return what identifies a configuration, which the running application need not have."""
    # Names in `label` and `runtime` refer to the running application, and identify nothing.
    kept = [str(key) for key in config if key not in ("label", "runtime")]
    return recorded(OmegaConf.masked_copy(config, kept))


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
