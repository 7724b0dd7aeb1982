"""The templates of the LaTeX tables and of the HTML page."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def templates(**options: Any) -> Environment:
    """Return the templates of the report."""
    return Environment(
        loader=PackageLoader("phantomgrad_suite.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
