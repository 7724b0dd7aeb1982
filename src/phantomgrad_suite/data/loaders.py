"""Loaders that know where they are: a run goes on in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler


class Shuffled(Sampler[int]):
    """An order for every epoch, from a seed that is drawn from torch's global generator.

    It is drawn at the first batch of an epoch, that is: behind the restored state of a resumed
    run. In a distributed run Lightning puts its ``DistributedSampler`` in this place.

    Args:
        data: whatever has a length.
    """

    def __init__(self, data: Sized) -> None:
        self._size = len(data)
        self._seed: int | None = None
        self._again = False

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        if not self._again or self._seed is None:
            self._seed = int(torch.empty((), dtype=torch.int64).random_().item())
        self._again = False
        generator = torch.Generator().manual_seed(self._seed)
        yield from torch.randperm(self._size, generator=generator).tolist()

    def state_dict(self) -> dict[str, Any]:
        """Return the seed of the present epoch."""
        return {"seed": self._seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make the next order that of a checkpoint, and draw nothing for it."""
        self._seed, self._again = state_dict["seed"], True


class ResumableLoader(DataLoader[Any]):
    """A loader that counts its batches, and after a restart hands out those that were left.

    Its generator is its own: an iterator draws a seed when it is made, and a resumed run, which
    makes one more, must not draw from the stream of the dropout masks.

    Args:
        arguments: of torch's loader.
        options: likewise.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("generator", torch.Generator())
        super().__init__(*arguments, **options)
        self._batches = self._skip = 0

    def __iter__(self) -> Any:
        self._batches = self._skip
        for batch in super().__iter__():
            self._batches += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return how many batches of this epoch were handed out, and in which order they come."""
        order: dict[str, Any] = getattr(self.sampler, "state_dict", dict)()
        return {"batches": self._batches, "order": order}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Begin the next epoch where that of a checkpoint was left."""
        self._skip = state_dict["batches"]
        if state_dict["order"]:
            self.sampler.load_state_dict(state_dict["order"])  # type: ignore[attr-defined]

    @property
    def _index_sampler(self) -> Any:
        # The samples that are left out must not be read, so it is their indices that are skipped;
        # and the sampler stays as it is, for Lightning puts others in its place.
        return _Rest(super()._index_sampler, self)

    def _skipped(self) -> int:
        skip, self._skip = self._skip, 0
        return skip


class _Rest:
    """The indices of a loader's batches, once without those to be skipped."""

    def __init__(self, batches: Any, loader: ResumableLoader) -> None:
        self._batches, self._loader = batches, loader

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        # Asked for with the first index: a loader with workers makes two iterators, and uses one.
        yield from islice(iter(self._batches), self._loader._skipped(), None)
