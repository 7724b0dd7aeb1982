"""Which run a configuration describes, and how it differs from its row."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from phantomgrad_suite.runs.errors import UserError

# Where and how a run is executed, and what tables call it; the result does not depend on them.
_DESCRIPTIVE = ("label", "runtime")
_MISSING = object()
_NAMED, _LONGEST, _DIGITS = 2, 32, 6  # changes, their characters, and digits in an instance
_NAME = re.compile(r"(?!\.)[^/\\\0\n]+")  # of a folder that is not hidden
SCALES = ("cpu",)  # the folders of rows in another size (configs/scale)

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Identity:
    """The name of a run: the folder ``<row>/<instance>`` of its files.

    Attributes:
        row: ``label.row`` of the configuration, usually the path of its experiment or study file,
            in the folder ``label.scale`` if it has one (``cpu/table1/implicit``).
        instance: ``seed<k>``, with ``-fold<i>`` where the data set has folds. If the configuration
            differs from the row's own, it ends with the first changes and a part of the hash:
            ``seed0-solver_Anderson-7d4b02``.
        changes: these differences, for example ``gradient.steps=9``.
        config_hash: the hash of all settings except ``label``, ``runtime``, seed and fold.
    """

    row: str
    instance: str
    changes: tuple[str, ...]
    config_hash: str

    def __str__(self) -> str:
        return f"{self.row} {self.instance}"

    @property
    def is_changed(self) -> bool:
        """Whether it differs from its row, or has none."""
        return self.instance.endswith(f"-{self.config_hash[:_DIGITS]}")


def split_row(row: str) -> tuple[str, str]:
    """Return the scale of a row, empty for its own size, and the row without it."""
    scale, _, rest = row.partition("/")
    return (scale, rest) if scale in SCALES else ("", row)


def table_of(row: str) -> str:
    """Return the table of a row: the first part of its name without the scale."""
    return split_row(row)[1].partition("/")[0]


def identify(config: Config, row_config: Config | None) -> Identity:
    """Return the identity of a run from its resolved configuration and that of its row alone.

    Raises:
        UserError: the seed or the fold is not an integer that can seed generators.
    """
    fold = config.get("dataset", {}).get("fold")
    for name, value in (("seed", config["seed"]), ("dataset.fold", 0 if fold is None else fold)):
        if type(value) is not int or not 0 <= value < 2**32:
            raise UserError(f"{name} must be an integer from 0 to {2**32 - 1}, got {value!r}")
    changes = tuple(difference(config, row_config or {}))
    config_hash = hash_config(config)
    instance = f"seed{config['seed']}" + ("" if fold is None else f"-fold{fold}")
    if row_config is None or changes:
        named = [] if row_config is None else [_short(change) for change in changes]
        more = [f"+{len(named) - _NAMED}"] if len(named) > _NAMED else []
        instance = "-".join([instance, *named[:_NAMED], *more, config_hash[:_DIGITS]])
    label = config["label"]
    row = "/".join(filter(None, (label.get("scale"), label["row"] or "custom")))
    check_row(row)
    return Identity(row, instance, changes, config_hash)


def check_row(row: str) -> None:
    """Raise :class:`UserError` if the name of a row would lead out of the folder of its runs."""
    if not all(_NAME.fullmatch(part) for part in row.split("/")):
        raise UserError(
            "label.row must be names joined by /, without .. or a / at its ends (it is a folder in "
            f"runtime.paths.runs), got {row!r}"
        )


def hash_config(config: Config) -> str:
    """Return the SHA-256 of the settings that determine the result of a run."""
    return hashlib.sha256(json.dumps(decisive(config), sort_keys=True).encode()).hexdigest()


def difference(config: Config, reference: Config) -> list[str]:
    """Return the decisive settings in which ``config`` differs from ``reference``.

    One ``key=value`` each. Where an object is of another class (``_target_``), its arguments are
    not compared one by one.
    """
    differing = _differing(decisive(config), decisive(reference))
    return [f"{key}={_printed(value)}" for key, value in differing]


def _short(change: str) -> str:
    """Return a change for the name of a folder: ``steps_9``, ``solver_Anderson``.

    It can be typed as a value of an override, which a ``=`` would have to be quoted for.
    """
    key, _, value = change.partition("=")
    name = f"{key.rpartition('.')[2]}_{value.partition('(')[0]}"
    return re.sub(r"[^\w.+]+", "_", name)[:_LONGEST]


def decisive(config: Config) -> dict[str, Any]:
    """Return the settings of a configuration that determine the result, without seed and fold."""
    kept = {k: v for k, v in config.items() if k not in (*_DESCRIPTIVE, "seed")}
    if "dataset" in kept:
        kept["dataset"] = {k: v for k, v in kept["dataset"].items() if k != "fold"}
    return kept


def _differing(new: Config, old: Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key in sorted({*new, *old}):
        a, b = new.get(key, _MISSING), old.get(key, _MISSING)
        if a == b and repr(a) == repr(b):  # 1 and 1.0 have different hashes
            continue
        nested = isinstance(a, Mapping) and isinstance(b, Mapping)
        if nested and a.get("_target_") == b.get("_target_"):
            yield from _differing(a, b, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", a


def _printed(value: Any) -> str:
    if value is _MISSING:
        return "<not set>"
    if isinstance(value, Mapping) and "_target_" in value:
        name = value["_target_"].rpartition(".")[2]
        arguments = (f"{k}={_printed(v)}" for k, v in value.items() if k != "_target_")
        return f"{name}({', '.join(arguments)})"
    return str(value)
