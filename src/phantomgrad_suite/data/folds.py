"""Splits of a labelled data set into training, validation and test parts.

scikit-learn is imported where a set is split: with pandas it takes a second, and few sets need it.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from phantomgrad_suite.runs.errors import UserError


class Split(NamedTuple):
    """Indices into the data set, in the order in which batches take them."""

    train: Tensor
    validation: Tensor
    test: Tensor


def authors_split(labels: Tensor, fold: int, folds: int, seed: int) -> Split:
    """Return a fold as IGNN's script makes it; there is no validation part.

    It shuffles the data set, but stratifies by the labels in file order, so the folds are
    *not* stratified (the majority class makes 64 to 89 % of a COX2 test fold).
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, test = _positions(labels, folds, seed)[fold]
    return Split(order[train], order[:0], order[test])


def stratified_split(labels: Tensor, fold: int, folds: int, seed: int) -> Split:
    """Return a stratified fold; the next fold is the validation part, the rest is for training."""
    parts = [torch.from_numpy(test) for _, test in _positions(labels, folds, seed)]
    following = (fold + 1) % folds
    train = torch.cat([part for i, part in enumerate(parts) if i not in (fold, following)])
    # Folds list their members in file order, often by class: shuffle the fixed batches once.
    train = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))]
    return Split(train, parts[following], parts[fold])


def held_out(labels: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices that stay and ``count`` that are held out, stratified; both sorted."""
    classes = len(labels.bincount().nonzero())
    if not classes <= count <= len(labels) - classes:
        raise UserError(
            f"dataset.validation must lie in [{classes}, {len(labels) - classes}] (both parts need "
            f"an image of each class), got {count}"
        )
    from sklearn.model_selection import StratifiedShuffleSplit

    splitter = StratifiedShuffleSplit(1, test_size=count, random_state=seed)
    ((kept, held),) = splitter.split(np.zeros(len(labels)), labels.numpy())
    return torch.from_numpy(kept).sort().values, torch.from_numpy(held).sort().values


def _positions(labels: Tensor, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    from sklearn.model_selection import StratifiedKFold

    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    return list(splitter.split(np.zeros(len(labels)), labels.numpy()))
