"""The base class of puzzles: distinct ones, in parts that share no class, and batches of them."""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from phantomgrad_suite.checkpoint.loaders import ResumableLoader, Shuffled
from phantomgrad_suite.data.base import DataModule, Synthetic
from phantomgrad_suite.data.images.base import in_order
from phantomgrad_suite.data.sources import cached, digest
from phantomgrad_suite.runs.errors import UserError

log = logging.getLogger(__name__)

IGNORED = -100  # the target of a position without a label
_SHIFT = np.uint64(39)  # gives test and validation about a fifth of the 6 x 6 grids each
_PATIENCE = 20  # draws without a new puzzle, after which there are no more


class PuzzleBatch(NamedTuple):
    """Token ids of puzzles and of their solutions, ``(B, L)`` each, as 64-bit integers."""

    inputs: Tensor
    targets: Tensor  # -100 where there is no label


class Draw(NamedTuple):
    """N puzzles, and the part that each belongs to."""

    inputs: np.ndarray  # token ids, (N, L)
    targets: np.ndarray  # (N, L)
    ratings: np.ndarray  # how hard each is, (N,)
    parts: np.ndarray  # names, (N,)


class PuzzleSet(TensorDataset):
    """Puzzles, solutions and ratings; a batch is one slice of the first two."""

    def __getitems__(self, indices: list[int]) -> PuzzleBatch:
        return PuzzleBatch(*(tokens[indices].long() for tokens in self.tensors[:2]))


@dataclass(kw_only=True, eq=False)
class PuzzleData(DataModule):
    """Distinct puzzles, made once from a seed and cached in ``root``/puzzles.

    The cache knows a generator by its name and settings: when its code changes, delete its file.
    A part has a fixed share of the classes of equivalent puzzles. So no augmentation of a training
    puzzle is tested, and the test does not depend on the number of training puzzles. Subclasses
    define ``title``, ``vocabulary``, ``positions`` (in training) and :meth:`draws`.
    """

    root: str
    batch_size: int = 64  # of one process; incomplete training batches are dropped
    test_batch_size: int = 256
    train: int = 1000
    validation: int = 500
    test: int = 500
    repeats: int = 1  # of each training puzzle in an epoch
    augment: bool = True
    seed: int = 0  # of the puzzles
    title: str = field(init=False)
    vocabulary: int = field(init=False)  # with token 0, the padding
    positions: int = field(init=False)

    @property
    def files(self) -> list[Path]:
        """What the puzzles are read from; none where they are made."""
        return []

    def __post_init__(self) -> None:
        super().__init__()
        self.evaluation_sets = ("test", "validation")
        counts = "train", "validation", "test", "repeats"
        self.check_settings(1, "batch_size", "test_batch_size", *counts)
        self.check_settings(0, "seed")
        if self.batch_size > self.train * self.repeats:
            limit = f"the {self.train * self.repeats} training puzzles"
            raise UserError(f"dataset.batch_size must be at most {limit}, got {self.batch_size}")

    def draws(self) -> Iterator[Draw]:
        """Yield random puzzles of all parts."""
        raise NotImplementedError

    def augmented(self, batch: PuzzleBatch, generator: torch.Generator) -> PuzzleBatch:
        """Return equivalent puzzles, chosen by a generator on the CPU."""
        return batch

    def make(self) -> dict[str, list[Tensor]]:
        """Return inputs, targets and ratings of each part."""
        log.info("making the puzzles of %s, once", self.title)
        counts = {part: getattr(self, part) for part in ("train", "validation", "test")}
        return collect(self.draws(), counts)

    @cached_property
    def parts(self) -> dict[str, PuzzleSet]:
        """The puzzles of each part."""
        unrelated = ("root", "batch_size", "test_batch_size", "repeats", "augment")
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in unrelated}
        kind = type(self)
        described = repr((kind.__module__, kind.__qualname__, settings))
        key = hashlib.sha256(described.encode()).hexdigest()[:16]
        path = Path(self.root, "puzzles", f"{self.title.lower()}-{key}.pt")
        names = ("train", *self.evaluation_sets)
        tensors = cached(path, self.files, lambda: [*chain(*map(self.make().__getitem__, names))])
        return {name: PuzzleSet(*tensors[3 * i : 3 * i + 3]) for i, name in enumerate(names)}

    def sizes(self) -> Mapping[str, int]:
        return {"vocabulary": self.vocabulary, "positions": self.positions}

    def facts(self) -> dict[str, Any]:
        content = digest(chain(*(part.tensors for part in self.parts.values())))
        counts = {name: len(part) for name, part in self.parts.items()}
        return {"name": self.title, "fingerprint": f"sha256:{content}", **counts}

    def loader(self, part: str) -> ResumableLoader:
        data, share = self.parts[part], self.share
        if part == "train":
            data = PuzzleSet(
                *(tensor.repeat_interleave(self.repeats, 0) for tensor in data.tensors)
            )
            order = Shuffled(data, *share)
            return ResumableLoader(data, self.batch_size, sampler=order, drop_last=True)
        in_parts = in_order(data, self.test_batch_size, share)
        return ResumableLoader(data, self.test_batch_size, sampler=in_parts)

    def on_after_batch_transfer(self, batch: PuzzleBatch, dataloader_idx: int) -> PuzzleBatch:
        if not (self.augment and self.trainer and self.trainer.training):
            return batch
        # The global generator, which a resumed run restores, draws the same in every process.
        seed = int(torch.randint(2**62, ())) + self.share.process
        return self.augmented(batch, torch.Generator().manual_seed(seed))

    @classmethod
    def synthetic(cls, **settings: Any) -> Synthetic:
        data = cls(**{"root": "", **settings})
        shape = (2, data.batch_size, data.positions)
        return Synthetic(
            samples=data.batch_size,
            unit="puzzles",
            draw=lambda g: PuzzleBatch(*torch.randint(1, data.vocabulary, shape, generator=g)),
            sizes=lambda: dict(data.sizes()),
            evaluation_sets=data.evaluation_sets,
        )


def parts_of(classes: np.ndarray) -> np.ndarray:
    """Return the part of each class, a 64-bit hash: three fifths of the classes train."""
    names = np.array(["test", "validation", "train", "train", "train"])
    return np.take(names, (classes >> _SHIFT) % np.uint64(5))


def collect(draws: Iterator[Draw], counts: dict[str, int]) -> dict[str, list[Tensor]]:
    """Return inputs, targets and ratings of the first different puzzles of each part."""
    rows: dict[str, dict[bytes, tuple[Any, ...]]] = {part: {} for part in counts}
    idle, total, missing = 0, 0, [*counts]
    for draw in draws:
        for row in zip(*draw, strict=True):
            if row[3] in missing and len(rows[row[3]]) < counts[row[3]]:
                rows[row[3]].setdefault(row[0].tobytes(), row[:3])
        missing = [part for part in counts if len(rows[part]) < counts[part]]
        before, total = total, sum(map(len, rows.values()))
        idle = idle + 1 if total == before else 0
        if not missing or idle == _PATIENCE:
            break
    if missing:
        part, found = missing[0], len(rows[missing[0]])
        raise UserError(
            f"dataset.{part} must be at most {found}, got {counts[part]}: "
            "no more different puzzles exist with these settings, or they are too rare"
        )
    return {
        part: [torch.from_numpy(np.array(column)) for column in zip(*found.values(), strict=True)]
        for part, found in rows.items()
    }
