"""What the experiments ask of every data set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader

from phantomgrad_suite.runs.errors import UserError


class Share(NamedTuple):
    """Which of how many processes this one is."""

    processes: int = 1
    process: int = 0


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """What stands in for a data set where its shapes alone matter: noise, from no file.

    Attributes:
        samples: in a training batch of one process.
        unit: what these are, in the plural, for example ``images``.
        draw: makes a training batch as the task gets it, on the CPU.
        of_model: the sizes that a model of these data is told.
        of_task: the sizes that a task on these data is told.
        evaluation_sets: as of a :class:`DataModule`.
    """

    samples: int
    unit: str
    draw: Callable[[torch.Generator], Any]
    of_model: dict[str, int]
    of_task: dict[str, int]
    evaluation_sets: tuple[str, ...] = ("test",)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of a model, as :meth:`DataModule.sizes` does."""
        return self.of_model

    def targets(self) -> dict[str, int]:
        """Return the sizes of a task, as :meth:`DataModule.targets` does."""
        return self.of_task


class DataModule(LightningDataModule):
    """A data set with named evaluation sets, and facts for the record of a run.

    Attributes:
        evaluation_sets: the names of the validation loaders, in order; ``test`` is among them,
            and ``validation`` where epochs are selected without looking at the test set.
    """

    evaluation_sets: tuple[str, ...] = ("test",)

    @abstractmethod
    def sizes(self) -> Mapping[str, float]:
        """Return the sizes that a model of these data is told, by argument."""

    def targets(self) -> dict[str, int]:
        """Return the sizes that a task on these data is told, by argument."""
        return {}

    def constant_score(self, part: str) -> float | None:
        """Return the metric of a predictor that looks at no input, where it is known.

        Args:
            part: the evaluation set.
        """
        return None

    @property
    def share(self) -> Share:
        """The part of this process in a distributed run; outside a trainer, all of it."""
        trainer = self.trainer
        return Share(trainer.world_size, trainer.global_rank) if trainer else Share()

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return ``name``, ``fingerprint`` (a hash of the content) and sizes, for the record.

        Where not all data are used, ``reduced`` says so in words.
        """

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        """Return noise in the shapes of these data, as training would see it; no file is read.

        Args:
            settings: the arguments of the constructor.

        Raises:
            UserError: there is no such noise for these data.
            ValueError: a setting is out of range.
        """
        raise UserError(f"{cls.__name__} has no synthetic batches")


class LabelledData(DataModule):
    """Data with features and one of several classes."""

    @property
    @abstractmethod
    def in_channels(self) -> int:
        """Width of the input features."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of classes."""

    def sizes(self) -> dict[str, int]:
        """Return the width of the features and the number of classes."""
        return {"in_channels": self.in_channels, "classes": self.classes}

    def targets(self) -> dict[str, int]:
        """Return the number of classes."""
        return {"classes": self.classes}


def fixed_batches(batches: list[Any]) -> DataLoader[Any]:
    """Return a loader of prepared batches, always in the same order.

    Its generator is its own: an iterator draws a seed when it is made, and a resumed run, which
    makes one more, must not draw from the stream of the dropout masks.
    """
    return DataLoader(batches, batch_size=None, generator=torch.Generator())  # type: ignore[arg-type]
