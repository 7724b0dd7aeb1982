"""Where configurations lie: in the checkout, and in the folders of the user's own.

``PHANTOMGRAD_CONFIG_PATH`` names these, as ``PATH`` does. Every command and every process that it
starts reads the variable; to Hydra they are part of the search path.
"""

import os
from pathlib import Path

from phantomgrad_suite.runs.errors import UserError

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
CONFIG_PATH = "PHANTOMGRAD_CONFIG_PATH"


def folders(configs: Path = CONFIGS) -> tuple[Path, ...]:
    """Return ``configs``, which has precedence, and the user's folders.

    Raises:
        UserError: one of these is no folder, or has a file that would be ignored.
    """
    own = [Path(name) for name in os.environ.get(CONFIG_PATH, "").split(os.pathsep) if name]
    for folder in own:
        if not folder.is_dir():
            raise UserError(f"{CONFIG_PATH} must list folders of configurations, got {folder}")
        for path in folder.rglob("*.yaml"):
            if (configs / path.relative_to(folder)).exists():
                raise UserError(f"{path} has the name of a file of {configs}: rename it")
    return configs, *own


def find(name: str, places: tuple[Path, ...]) -> Path | None:
    """Return the file ``<name>.yaml`` of the first folder that has it."""
    paths = (place / f"{name}.yaml" for place in places)
    return next((path for path in paths if path.exists()), None)


def choices(group: str, configs: Path = CONFIGS) -> list[str]:
    """Return the choices of a configuration group, nested ones by their path."""
    groups = [folder / group for folder in folders(configs)]
    paths = {p.relative_to(g).with_suffix("") for g in groups for p in g.rglob("*.yaml")}
    return sorted(map(str, paths))


def prefix() -> list[str]:
    """Return what a command line begins with so that its reader finds the user's folders, too."""
    own = [str(folder.resolve()) for folder in folders()[1:]]
    return ["env", f"{CONFIG_PATH}={os.pathsep.join(own)}"] if own else []
