"""What overrides change of a row: those that only say again what its file says change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from phantomgrad_suite.runs.folder import Identity, hash_config

# The overrides that choose a row; the others are what may differ from it.
_CHOICES = ("experiment", "study", "suite", "table", "tune")
# Images are scored one by one, so their batches are a circumstance. (Of texts it is the number of
# streams, whose first tokens have no context.) It is hashed with the value of the row.
_TEST_BATCH = "dataset.test_batch_size"
_IMAGES = ("phantomgrad_suite.data.Cifar10", "phantomgrad_suite.data.ImageNet")
_NOTHING = object()


def identify(config: dict[str, Any], row: str | None, overrides: list[str]) -> Identity:
    """Name a run as :meth:`Identity.of` does, but count no override that changes nothing.

    Args:
        config: the resolved configuration.
        row: the experiment or study file it was composed with, ``None`` without one.
        overrides: what was overridden on the command line.

    Raises:
        UserError: the seed is not one that every generator takes.
    """
    found = Identity.of(config, row, overrides)
    own = _own(config, found, overrides) if row is not None and found.changes else None
    if own is None:
        return found
    changes = set(found.changes)
    if _TEST_BATCH in map(_place, changes) and config["dataset"].get("_target_") in _IMAGES:
        size = own["dataset"].get("test_batch_size")
        config = {**config, "dataset": {**config["dataset"], "test_batch_size": size}}
    real = _effective(config, own, found.changes)
    if not real and hash_config(config) != hash_config(own):  # they change something together
        return found
    return Identity.of(config, row, [o for o in overrides if o not in changes or o in real])


def _own(
    config: dict[str, Any], found: Identity, overrides: Sequence[str]
) -> dict[str, Any] | None:
    """Return the configuration of the row itself, nothing where it does not stand alone."""
    named = (config.get("sweep") or {}).get("keys", [])
    chosen = [o for o in overrides if o not in found.changes and _place(o) in (*_CHOICES, *named)]
    try:
        with _hydra():
            own = compose(HydraConfig.get().job.config_name, chosen)
        return OmegaConf.to_container(own, resolve=True)  # type: ignore[return-value]
    except (HydraException, OmegaConfBaseException):
        return None


def _hydra() -> AbstractContextManager[Any]:
    if GlobalHydra.instance().is_initialized():
        return nullcontext()
    sources = HydraConfig.get().runtime.config_sources
    (folder,) = (source.path for source in sources if source.provider == "main")
    return initialize_config_dir(folder, version_base="1.3")


def _effective(config: dict[str, Any], own: dict[str, Any], changes: Iterable[str]) -> list[str]:
    """Return the overrides by which the configurations differ, and those of what these chose."""
    differing = [o for o in changes if _value(config, _place(o)) != _value(own, _place(o))]
    above = tuple(f"{_place(o)}." for o in differing)
    return [o for o in changes if o in differing or _place(o).startswith(above)]


def _place(override: str) -> str:
    """Return where in the configuration an override acts: of ``solver@adjoint``, ``adjoint``."""
    return override.lstrip("+~").partition("=")[0].rpartition("@")[2]


def _value(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part, _NOTHING) if isinstance(tree, dict) else _NOTHING
    return tree
