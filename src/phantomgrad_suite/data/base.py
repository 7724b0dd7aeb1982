"""The base class of data modules, and synthetic batches for timings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from lightning import LightningDataModule

from phantomgrad.checks import check_at_least
from phantomgrad_suite.runs.errors import MissingDataError, UserError


class Share(NamedTuple):
    """The number of processes of a distributed run, and the rank of this one."""

    processes: int = 1
    process: int = 0


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Random batches in the shapes of a data set, for measurements that need no real data."""

    samples: int  # in a training batch of one process
    unit: str  # what is counted: images, tokens
    draw: Callable[[torch.Generator], Any]  # returns a training batch, on the CPU
    sizes: Callable[[], dict[str, int]]
    evaluation_sets: tuple[str, ...] = ("test",)


class DataModule(LightningDataModule):
    """A data set with named evaluation sets, and facts for the record of a run.

    A subclass defines :meth:`facts`, :meth:`loader`, and either ``in_channels`` and ``classes`` or
    :meth:`sizes`. Of its ``evaluation_sets``, the names of the validation loaders, ``test`` is one,
    and ``validation`` where epochs are selected without the test set.
    """

    in_channels: int
    classes: int
    evaluation_sets: tuple[str, ...] = ("test",)
    worker_init_fn: Callable[[int], None] | None = None  # set by the run

    def sizes(self) -> Mapping[str, float]:
        """Return the arguments of the model, of which a task gets ``classes`` and ``labels``."""
        return {"in_channels": self.in_channels, "classes": self.classes}

    def facts(self) -> dict[str, Any]:
        """Return ``name``, sizes, ``fingerprint`` and, unless all data are used, ``reduced``.

        The fingerprint is that of the contents that were read, labels included. It must be known
        before :meth:`setup`, in seconds.
        """
        raise NotImplementedError

    def loader(self, part: str) -> Any:
        """Return the loader of ``train`` or of an evaluation set."""
        raise NotImplementedError

    def train_dataloader(self) -> Any:
        return self.loader("train")

    def val_dataloader(self) -> list[Any]:
        return [self.loader(name) for name in self.evaluation_sets]

    def check_settings(self, least: int, *names: str) -> None:
        """Raise ``ValueError`` unless these are integers >= ``least``, or ``None`` by default."""
        for name in names:
            value = getattr(self, name)
            if value is not None or getattr(type(self), name, 0) is not None:
                check_at_least(f"dataset.{name}", value, least)

    @property
    def share(self) -> Share:
        """The part of this process in a distributed run; without a trainer, there is only one."""
        trainer = self.trainer
        return Share(trainer.world_size, trainer.global_rank) if trainer else Share()

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        """Return random batches in the shapes that ``settings`` give, without reading a file."""
        raise UserError(f"{cls.__name__} has no synthetic batches")


def missing_data(problem: str, name: str) -> MissingDataError:
    """Return the error of missing or damaged files; ``fetch_data.py`` fetches them as ``name``."""
    return MissingDataError(
        f"{problem}: fetch it with `python scripts/fetch_data.py {name}` (or, without network, "
        "add `--from DIR`), or set runtime.dataset.root"
    )
