"""Loaders whose position can be saved and restored in the middle of an epoch."""

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler


class Shuffled(DistributedSampler[int]):
    """A new random order in every epoch, from a seed drawn from torch's global generator.

    The seed is drawn with the first batch of an epoch, that is, after a resumed run has restored
    the generator. Several processes draw the same order, and each takes its part of a permutation
    of it, as from Lightning's ``DistributedSamplerWrapper``, which cannot restore an order.
    """

    def __init__(self, data: Sized, processes: int = 1, process: int = 0) -> None:
        several, seed = processes > 1, torch.initial_seed()
        super().__init__(data, processes, process, shuffle=several, seed=seed)  # type: ignore[arg-type]
        self._seed: int | None = None
        self._restored: int | None = None

    def __iter__(self) -> Iterator[int]:
        self._seed, self._restored = self._restored, None
        if self._seed is None:
            self._seed = int(torch.empty((), dtype=torch.int64).random_().item())
        generator = torch.Generator().manual_seed(self._seed)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()  # type: ignore[arg-type]
        yield from (order[place] for place in super().__iter__())

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self._seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._seed = self._restored = state_dict["seed"]


class ResumableLoader(DataLoader[Any]):
    """A loader that counts its batches, and after ``load_state_dict`` skips those already taken.

    It has a generator of its own: torch draws a seed for each new iterator, and a resumed run,
    which makes one more of them, must not draw from the generator of the dropout masks. It
    collates nothing: data sets return whole batches. Its sampler has ``state_dict``, as
    :class:`Shuffled`, or an order that follows from the epoch alone.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options = {"generator": torch.Generator(), "collate_fn": _no_collate, **options}
        super().__init__(*arguments, **options)
        self._place = _Place()

    def __iter__(self) -> Any:
        self._place.batches = self._place.skip
        for batch in super().__iter__():
            self._place.batches += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        order: dict[str, Any] = getattr(self.sampler, "state_dict", dict)()
        return {"batches": self._place.batches, "order": order}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._place.skip = state_dict["batches"]
        if state_dict["order"]:
            self.sampler.load_state_dict(state_dict["order"])  # type: ignore[attr-defined]

    @property
    def _index_sampler(self) -> Any:
        # Skips indices, so that skipped samples are not read. Wrapped here rather than in the
        # constructor because Lightning may replace the sampler.
        return _Remaining(super()._index_sampler, self._place)


@dataclass
class _Place:
    """The number of batches taken in this epoch, and of those that the next one skips."""

    batches: int = 0
    skip: int = 0


class _Remaining:
    """The batches of indices of a loader; once, without those that it should skip.

    It holds no loader: worker processes that end in a cycle of references are each waited for 5 s.
    """

    def __init__(self, batches: Any, place: _Place) -> None:
        self._batches, self._place = batches, place

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        # A generator: a loader with workers makes two iterators, and takes indices from one.
        skip, self._place.skip = self._place.skip, 0
        yield from islice(iter(self._batches), skip, None)


def _no_collate(batch: Any) -> Any:
    return batch
