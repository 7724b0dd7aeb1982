"""The experiments: Hydra composes them, Lightning trains them, records keep what came out."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phantomgrad_suite.released import load_model as load_model


def __getattr__(name: str) -> Any:
    if name == "load_model":  # imported with first use: status and reports do without torch
        from phantomgrad_suite.released import load_model

        return load_model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
