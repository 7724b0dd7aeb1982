"""What extensions add to the report.

The module ``<package>.report`` of an extension (:mod:`phantomgrad_suite.runs.configs`) updates five
dictionaries when it is imported: ``TABLES`` and ``FIGURES`` of :mod:`.catalogue`, titles and
captions; ``STUDIES`` of :mod:`.studies`, how the sections of a table are made from records of
studies; ``MAKERS`` of :mod:`.figures`, how the figures of a table are made; and ``QUANTITIES`` of
:mod:`.claims.quantities`, what claims compare.
"""

from importlib import import_module
from importlib.util import find_spec

from phantomgrad_suite.runs.configs import extensions


def load_extensions() -> None:
    """Import the module ``report`` of each extension that has one."""
    for package in extensions():
        if find_spec(f"{package}.report"):
            import_module(f"{package}.report")
