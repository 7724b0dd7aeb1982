"""Cases: one training step of MDEQ on a batch of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import OmegaConf

from phantomgrad.gradients import ImplicitGradient, UnrolledPhantomGradient
from phantomgrad.models import MDEQ
from phantomgrad.solvers import Broyden
from phantomgrad_suite.bench.contest import IMPLICIT, MEMORY, Aim, Limit
from phantomgrad_suite.bench.steps import Layer, Step, StepCase
from phantomgrad_suite.jobs.compose import CONFIGS

_CLASSES, _SIDE = 10, 32
_AIMS = (Aim("step", 2.0), Aim(MEMORY, 1.0))
_LESS_THAN_IMPLICIT = Aim("step", 1.4, against=IMPLICIT)
_SIZES = (("tiny", 64), ("large", 8))
# Seconds of a step at the sizes above, on two cores.
_LIMITS = {
    ("tiny", 64, "implicit"): (Limit("step", 3.9, threads=2),),
    ("tiny", 64, "UPG"): (Limit("step", 2.1, threads=2),),
}


@dataclass(frozen=True, kw_only=True)
class ImageCase(StepCase):
    """A step of MDEQ on images like those of CIFAR-10.

    Args:
        size: the file of the size in ``configs/model``.
        batch: number of images.
        side: of an image, in pixels.
        limits: what is expected of ours alone.
        most_outside: the share of a solve that may pass outside ``f``.
    """

    size: str
    batch: int
    side: int = _SIDE
    aims: tuple[Aim, ...] = _AIMS
    limits: tuple[Limit, ...] = ()
    most_outside: float | None = 0.15

    @property
    def samples(self) -> int:  # type: ignore[override]
        """The images."""
        return self.batch

    def step(self, device: torch.device, layer: Layer) -> Step:
        """Return the step, from the stem to the loss."""
        torch.manual_seed(0)
        model = MDEQ(3, _CLASSES, self.solver, self.gradient, **widths(self.size))
        model.deq = layer(model.deq.cell)  # type: ignore[assignment]
        model.to(device)
        images = torch.randn(self.batch, 3, self.side, self.side).to(device)
        labels = torch.randint(_CLASSES, (self.batch,)).to(device)
        return model, model.deq.cell, lambda: F.nll_loss(model(images), labels)


def image_cases(sizes: tuple[tuple[str, int], ...] = _SIZES) -> list[StepCase]:
    """Return the step of each size under implicit differentiation and the phantom gradient.

    The budgets are the paper's: 22 steps of Broyden for Tiny, 18 for Large, and k = 5.
    """
    return [
        ImageCase(
            name=f"MDEQ-{size.capitalize()}, {batch} images, {name}",
            solver=solver,
            gradient=gradient,
            implicit=None if gradient is implicit else implicit,
            aims=_AIMS if gradient is implicit else (*_AIMS, _LESS_THAN_IMPLICIT),
            size=f"mdeq_{size}",
            batch=batch,
            limits=_LIMITS.get((size, batch, name), ()),
        )
        for size, batch in sizes
        for solver in (Broyden(max_evaluations=_BUDGETS[size], tol=0),)
        for implicit in (ImplicitGradient(solver=solver, on_failure="ignore"),)
        for name, gradient in (("implicit", implicit), ("UPG", _PHANTOM))
    ]


_PHANTOM = UnrolledPhantomGradient(steps=5, damping=0.5)


_BUDGETS = {"tiny": 23, "large": 19}


def widths(size: str) -> dict[str, Any]:
    """Return the arguments of a size of MDEQ, as its configuration states them."""
    content = OmegaConf.to_container(OmegaConf.load(CONFIGS / "model" / f"{size}.yaml"))
    assert isinstance(content, dict)
    return {
        str(name): value
        for name, value in content.items()
        if name not in ("solver", "gradient") and not str(name).startswith("_")
    }
