"""What all studies share: settings, findings, summaries, and matrices of the synthetic setting."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from phantomgrad.checks import check_at_least, check_damping, check_list
from phantomgrad.gradients.phantom import neumann_sums
from phantomgrad_suite.runs.records import Check
from phantomgrad_suite.studies.synthetic import SyntheticCell, check_synthetic

T = TypeVar("T")
Matrix = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Findings:
    """The result of a study: plain data, and the claims that were tested."""

    numbers: dict[str, Any]
    checks: list[Check] = field(default_factory=list)


@dataclass(frozen=True)
class Study(ABC):
    """A measurement; subclasses are frozen dataclasses of its setting.

    Shared settings: the ``nonlinearity`` of F, which the paper does not name, and its constant
    ``lipschitz``; width D (``size``) and ``rows`` N of a state; ``samples``, the number of random
    problems; ``steps``, the values of k, and ``dampings``, those of lambda.
    """

    def __post_init__(self) -> None:
        entries: dict[str, Callable[[Any], None]] = {
            "lipschitz": lambda x: check_synthetic(x, getattr(self, "nonlinearity", "linear")),
            "steps": lambda x: check_at_least("steps", x, 1),
            "damping": check_damping,
            "dampings": check_damping,
        }
        for setting in fields(self):
            name, value = setting.name, getattr(self, setting.name)
            if type(setting.default) is int:
                check_at_least(name, value, 1)
            elif name in entries:
                values = [value] if isinstance(setting.default, float) else value
                check_values(name, values)
                for entry in values:
                    entries[name](entry)

    @abstractmethod
    def measure(self, seed: int, device: torch.device) -> Findings: ...


def check_values(name: str, values: object) -> None:
    """Raise unless ``values`` is a list that is not empty."""
    if not check_list(name, values):
        raise ValueError(f"{name} must hold at least one value, got {values!r}")


def progress(items: Sequence[T]) -> Iterable[T]:
    """Iterate over ``items``, with a progress bar on a terminal."""
    return tqdm(items, leave=False, disable=None)  # type: ignore[no-any-return]


def rounded(value: Tensor | float, digits: int = 8) -> float:
    """Return ``value`` rounded to ``digits`` significant digits."""
    return float(f"{float(value):.{digits}g}")


def synthetic_problem(
    study: Any, norm: float, generator: torch.Generator, device: torch.device
) -> tuple[SyntheticCell, Tensor]:
    """Draw a cell of the Lipschitz constant ``norm`` and an input, ``(1, D)``, in float64."""
    cell = SyntheticCell(study.size, norm, study.nonlinearity, generator)
    u = torch.randn(1, study.size, generator=generator, dtype=torch.float64)
    return cell.to(device, torch.float64), u.to(device)


def dense_jacobian(cell: SyntheticCell, h: Tensor, u: Tensor) -> Tensor:
    """Return ``dF/dh = dF/du`` of each row of ``h`` in float64, ``(rows, D of F, D of h)``."""
    double, u = copy.deepcopy(cell).double(), u.double()
    # The rows do not interact: one backward pass for each entry of F serves all of them.
    by_entry: Tensor = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        lambda h: double(h, u).sum(dim=0), h.double()
    )
    return by_entry.transpose(0, 1)


def as_matrix(derivative: Tensor) -> Matrix:
    """Return ``(D, *argument)`` in the paper's layout: ``(p, D)``, which acts on cotangents."""
    return np.ascontiguousarray(derivative.flatten(1).T.cpu().numpy())


def truncated_series(m: Matrix, damping: float, steps: Sequence[int]) -> dict[int, Matrix]:
    r"""Return :math:`\lambda \sum_{i<k} B^i` by k, with :math:`B = \lambda M + (1-\lambda) I`."""
    eye = np.eye(len(m))
    b = damping * m + (1 - damping) * eye
    sums = islice(neumann_sums(lambda u: b @ u, eye), max(steps))
    return {k: damping * total for k, total in enumerate(sums, start=1) if k in steps}
