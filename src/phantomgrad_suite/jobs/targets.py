"""The classes and functions that configurations name by ``_target_``: which may be built."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hydra.utils import get_object

from phantomgrad_suite.runs.configs import folders
from phantomgrad_suite.runs.errors import UserError

_OURS = re.compile(r"(phantomgrad|phantomgrad_suite|torch\.optim)(\.|$)")
_TARGET = re.compile(r"_target_: *['\"]?([\w.]+)")
# Not of loggers and launchers, which write files and start processes.
_GROUPS = (
    *("dataset", "experiment", "gradient", "model", "optimizer", "scale", "schedule", "solver"),
    *("task", "trainer"),
)


def targets(node: Any) -> Iterator[Any]:
    """Yield each ``_target_`` in a resolved configuration."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key == "_target_":
            yield value
        elif isinstance(value, dict | list):
            yield from targets(value)


def check_targets(node: list[Any]) -> None:
    """Raise :class:`UserError` if a configuration from a record names what must not be built.

    A record may come from elsewhere, and a target can be any function. So it may name classes of
    ours and of ``torch.optim``, and what a file of ``configs/`` or of your own folders names.
    """
    for target in targets(node):
        if not (_is_ours(str(target)) or target in _named(folders())):
            raise UserError(
                f"the record names {target}, which is not built from a record: it is no class of "
                "phantomgrad or torch.optim, and no file of configs/ names it as _target_ (if it "
                "is your own, let a file in a folder of PHANTOMGRAD_CONFIG_PATH name it)"
            )


def _is_ours(target: str) -> bool:
    if not _OURS.match(target):
        return False
    try:
        found = get_object(target)  # may be reached through a module of ours: torch.load
    except Exception:  # whatever its import raises
        return False
    return isinstance(found, type) and bool(_OURS.match(found.__module__))


@cache
def _named(places: tuple[Path, ...]) -> set[str]:
    """Return what the files of the groups that a model is built from name."""
    groups = [place / group for place in places for group in _GROUPS]
    files = [path for group in groups for path in group.rglob("*.yaml")]
    return {name for path in files for name in _TARGET.findall(path.read_text(encoding="utf-8"))}
