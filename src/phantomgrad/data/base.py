"""What the experiments ask of every data set."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader


class DataModule(LightningDataModule):
    """A data set with named evaluation sets, and facts for the record of a run.

    Attributes:
        evaluation_sets: the names of the validation loaders, in order; ``test`` is among them,
            and ``validation`` where epochs are selected without looking at the test set.
    """

    evaluation_sets: tuple[str, ...] = ("test",)

    @property
    @abstractmethod
    def in_channels(self) -> int:
        """Width of the input features."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of classes."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return ``name``, ``fingerprint`` (a hash of the content) and sizes, for the record.

        Where not all data are used, ``reduced`` says so in words.
        """


def fixed_batches(batches: list[Any]) -> DataLoader[Any]:
    """Return a loader of prepared batches, always in the same order.

    Its generator is its own: an iterator draws a seed when it is made, and a resumed run, which
    makes one more, must not draw from the stream of the dropout masks.
    """
    return DataLoader(batches, batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]
