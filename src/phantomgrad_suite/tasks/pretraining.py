"""The first steps of a run, in which a model is a plain weight-tied network."""

from __future__ import annotations

from dataclasses import dataclass

from phantomgrad.checks import check_at_least


@dataclass(frozen=True)
class Pretraining:
    """So many steps with so many applications of the cell (Bai et al., 2019 and 2020).

    They take the place of solver and gradient; optimizer and schedule go on through the change.

    Args:
        steps: optimizer steps of that stage.
        layers: applications of the cell in it; a model takes them as ``unrolled``.

    Raises:
        ValueError: a number is too small.
    """

    steps: int = 0
    layers: int = 1

    def __post_init__(self) -> None:
        check_at_least("pretraining_steps", self.steps, 0)
        check_at_least("pretraining_layers", self.layers, 1)

    def layers_at(self, step: int) -> int:
        """Return the applications after so many optimizer steps; 0 when the stage is over."""
        return self.layers if step < self.steps else 0
