"""Hydra configurations: composed by name, resolved, and identified."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import Identity, identify

CONFIGS = Path(__file__).resolve().parents[3] / "configs"

OmegaConf.register_new_resolver("joined", "/".join, replace=True)


def composing() -> AbstractContextManager[Any]:
    """Return a context for ``hydra.compose``, inside a running Hydra application or outside."""
    if GlobalHydra.instance().is_initialized():
        return nullcontext()
    return initialize_config_dir(str(_config_folder()), version_base="1.3")


def _config_folder() -> Path:
    if not HydraConfig.initialized():
        return CONFIGS
    sources = HydraConfig.get().runtime.config_sources
    return next((Path(s.path) for s in sources if s.provider == "main"), CONFIGS)


def compose_row(row: str) -> DictConfig:
    """Return the configuration of an experiment, as ``scripts/train.py`` composes it.

    Raises:
        UserError: there is no such experiment.
    """
    check_choice("experiment", row)
    with composing():
        return compose("train", [f"experiment={row}"])


def identity_of(config: DictConfig) -> Identity:
    """Return the identity of a configuration that Hydra has composed.

    Its row is composed alone, from those overrides that name it: the experiment or study, the table
    that lists it, and the settings that the table varies (``label.varied``).

    Args:
        config: the configuration, without Hydra's own part, which is ``HydraConfig``.

    Raises:
        UserError: the seed is not a valid seed, or an interpolation cannot be resolved.
    """
    resolved = as_dict(config)
    if resolved["label"]["row"] is None:
        return identify(resolved, None)
    hydra = HydraConfig.get()
    naming = {"experiment", "table", "tune", "study", "suite", *resolved["label"]["varied"]}
    overrides = [o for o in hydra.overrides.task if not o.startswith("runtime.")]
    chosen = [o for o in overrides if _key(o) in naming]
    if set(map(_key, overrides)) <= naming | {"seed", "dataset.fold", "cluster", "logger"}:
        return identify(resolved, resolved)  # the row as its file has it
    with composing():
        row = compose(hydra.job.config_name, chosen)
    # Names in `label` and `runtime` refer to the running application, and identify nothing.
    decisive = OmegaConf.masked_copy(row, [str(k) for k in row if k not in ("label", "runtime")])
    return identify(resolved, as_dict(decisive))


def as_dict(config: DictConfig) -> dict[str, Any]:
    """Return the configuration with every interpolation resolved.

    Raises:
        UserError: an interpolation refers to a missing key, or a mandatory value is missing.
    """
    try:
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        key, reason = error.full_key, str(error).strip().splitlines()[0]
        raise UserError(
            f"{key} cannot be resolved ({reason}): set {key}, or what it refers to, to a value"
        ) from error


def names(group: str) -> list[str]:
    """Return the choices of a configuration group, nested ones by their path."""
    folder = CONFIGS / group
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))


def check_choice(group: str, choice: str) -> None:
    """Raise a :class:`UserError` unless ``group`` is no group, or has a file named ``choice``."""
    if (CONFIGS / group).is_dir() and choice not in ("", "null", *names(group)):
        near = nearest(choice, names(group), f"{group}/")
        raise UserError(f"there is no {group} {choice!r}; {near}")


def nearest(wanted: str, known: Sequence[str], where: str) -> str:
    """Return which of ``known`` a misspelt name may mean, and where all of them are listed."""
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.3)
    suggestion = f"the nearest are {', '.join(near)}" if near else "there is none like it"
    return f"{suggestion} (all of them: configs/{where})"


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def keys(node: object, prefix: str = "") -> Iterable[str]:
    """Yield the dotted names of all settings of a configuration."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from keys(value, f"{prefix}{key}.")
