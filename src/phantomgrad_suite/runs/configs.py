"""Where configurations lie: in the checkout, in extensions, and in folders of the user's own.

An extension is an installed package with an entry point in the group ``phantomgrad.extensions``;
its folder ``configs`` is laid out as that of the checkout. ``PHANTOMGRAD_CONFIG_PATH`` names the
user's folders, as ``PATH`` does; every command and every process that it starts reads it. To
Hydra all of them are part of the search path.
"""

import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from phantomgrad_suite.runs.errors import UserError

_PACKAGE = Path(__file__).resolve().parents[1]
# The folder of configs/, results/ and scripts/: the checkout or, in a wheel, the package.
ROOT = _PACKAGE if (_PACKAGE / "configs").is_dir() else _PACKAGE.parents[1]
IS_CHECKOUT = ROOT != _PACKAGE
CONFIGS, RESULTS = ROOT / "configs", ROOT / "results"
CONFIG_PATH = "PHANTOMGRAD_CONFIG_PATH"
EXTENSIONS = "phantomgrad.extensions"


@cache
def extensions() -> dict[str, Path]:
    """Return the folder of each extension by the name of its package."""
    found = {}
    for point in sorted(entry_points(group=EXTENSIONS)):
        spec = find_spec(point.module)
        if spec and spec.submodule_search_locations:
            found[point.module] = Path(spec.submodule_search_locations[0])
    return found


def shared_folders() -> list[Path]:
    """Return that of the checkout, which has precedence, and those of the extensions."""
    others = (folder / "configs" for folder in extensions().values())
    return [CONFIGS, *(folder for folder in others if folder.is_dir())]


def folders() -> tuple[Path, ...]:
    """Return the shared folders and the user's.

    Raises:
        UserError: one of these is no folder, or has a file that would be ignored.
    """
    shared, own = shared_folders(), own_folders()
    for folder in own:
        if not folder.is_dir():
            raise UserError(f"{CONFIG_PATH} must list folders of configurations, got {folder}")
        for path in folder.rglob("*.yaml"):
            for other in shared:
                if (other / path.relative_to(folder)).exists():
                    raise UserError(f"{path} has the name of a file of {other}: rename it")
    return *shared, *own


def own_folders() -> list[Path]:
    """Return the folders that the user names."""
    return [Path(name) for name in os.environ.get(CONFIG_PATH, "").split(os.pathsep) if name]


def find(name: str) -> Path | None:
    """Return the file ``<name>.yaml`` of the first folder that has it."""
    paths = (place / f"{name}.yaml" for place in folders())
    return next((path for path in paths if path.exists()), None)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file, which must be a mapping; an empty file is one."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), loader) or {}
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must be a mapping, got {content!r}")
    return content


def choices(group: str, pattern: str = "**/*") -> list[str]:
    """Return the choices of a configuration group, nested ones by their path."""
    groups = [folder / group for folder in folders()]
    paths = {p.relative_to(g).with_suffix("") for g in groups for p in g.glob(f"{pattern}.yaml")}
    return sorted(map(str, paths))


def groups() -> list[str]:
    """Return the names of all configuration groups."""
    return sorted({path.name for place in folders() for path in place.iterdir() if path.is_dir()})


def listed(group: str, patterns: str) -> list[str]:
    """Return the choices that ``table1/*, !table1/upg_k9_d0.5`` names, where ``!`` leaves out.

    A name without ``*`` stays as it is, so that Hydra can report a wrong one.
    """
    found: dict[str, None] = {}
    for pattern in map(str.strip, patterns.split(",")):
        name = pattern.removeprefix("!").lstrip("/")
        names = choices(group, pattern=name) if "*" in name else [name]
        if not names:
            raise UserError(f"there is no file configs/{group}/{name}.yaml")
        if not pattern.startswith("!"):
            found |= dict.fromkeys(names)
        else:
            left = {key: None for key in found if key not in names}
            if left.keys() == found.keys() or not left:
                raise UserError(f"{patterns}: !{name} leaves out {'nothing' if left else 'all'}")
            found = left
    return list(found)


def sweep_of(params: Mapping[str, Any], scales: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """Return what a table sweeps at a ``scale``, with its rows or studies by their names."""
    found = {**params, **scales.get(scale, {})}
    for group in {"experiment", "study"} & found.keys():
        found[group] = ",".join(listed(group, str(found[group])))
    return found


def prefix() -> list[str]:
    """Return what a command line begins with so that its reader finds the user's folders, too."""
    own = [str(folder.resolve()) for folder in own_folders()]
    return ["env", f"{CONFIG_PATH}={os.pathsep.join(own)}"] if own else []
