"""What a run of the benchmark can be told."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from phantomgrad.checks import check_at_least
from phantomgrad_suite.runs.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one run.

    Args:
        device: ``auto`` (CUDA where there is one), ``cpu``, ``cuda`` or ``cuda:1``.
        threads: CPU threads of torch; ``None`` leaves them as they are.
        repeats: rounds of each case, at most; in a round every contender runs once.
        seconds: a case starts no further round after that time (but makes three at least).
        only: measure only the cases whose name contains it, in capitals or not.
        quick: a smoke test: few small cases, few rounds.
        data: where COX2 is, for the seconds of an epoch; left out, with a line, where it is not.
        epochs: how many epochs these are a mean of.
        output: where the results go, ``<device>.json`` and ``<device>.md``, with the number of
            CPU threads in their name where these are several, and what ``only`` is.
    """

    device: str = "auto"
    threads: int | None = 1
    repeats: int = 15
    seconds: float = 10.0
    only: str = ""
    quick: bool = False
    data: str = "data/TUDataset"
    epochs: int = 200
    output: str = "results/bench"

    def __post_init__(self) -> None:
        check_at_least("repeats", self.repeats, 1)
        check_at_least("epochs", self.epochs, 1)
        if self.threads is not None:
            check_at_least("threads", self.threads, 1)
        if not self.seconds >= 0:
            raise ValueError(f"seconds must not be negative, got {self.seconds}")

    def resolve_device(self) -> torch.device:
        """Return the device to measure.

        Raises:
            UserError: it is no CPU and no CUDA device, or not there.
        """
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError as error:
            raise UserError(f"device must be auto, cpu or cuda, got {self.device!r}") from error
        if device.type not in ("cpu", "cuda"):
            raise UserError(f"device must be auto, cpu or cuda, got {self.device!r}")
        if device.type == "cuda" and not torch.cuda.is_available():
            raise UserError(f"device={self.device}, but torch sees no CUDA device")
        return device
