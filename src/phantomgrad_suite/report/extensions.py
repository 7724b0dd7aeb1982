"""What extensions add to the report: tables of studies, figures, and their titles.

The module ``<package>.report`` of an extension (:mod:`phantomgrad_suite.runs.configs`) calls
:func:`extend` when it is imported.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from phantomgrad_suite.report.catalogue import Entry, add_entries
from phantomgrad_suite.report.document import Section, Table
from phantomgrad_suite.report.figures import MAKERS, OF_ALL
from phantomgrad_suite.report.figures.style import Plot
from phantomgrad_suite.report.studies import STUDIES
from phantomgrad_suite.report.studies.parts import Records
from phantomgrad_suite.runs.configs import extensions


def extend(
    catalogue: Path,
    studies: Mapping[str, Callable[[Entry, Records], Iterator[Section]]],
    figures: Mapping[str, Callable[[Table], Iterator[Plot]]],
    of_all: Iterable[Callable[[Table], Iterator[Plot]]] = (),
) -> None:
    """Add to the report.

    Args:
        catalogue: a file like ``catalogue.toml``, with ``tables`` and the captions of ``figures``.
        studies: how the sections of a table are made from records of studies, by its key.
        figures: how the figures of a table are made, by its key.
        of_all: what makes further figures, of any table.
    """
    add_entries(tomllib.loads(catalogue.read_text(encoding="utf-8")))
    STUDIES.update(studies)
    MAKERS.update(figures)
    OF_ALL.extend(of_all)


def load_extensions() -> None:
    """Import the module ``report`` of each extension that has one."""
    for package in extensions():
        if find_spec(f"{package}.report"):
            import_module(f"{package}.report")
