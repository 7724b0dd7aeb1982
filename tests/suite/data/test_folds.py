"""The folds: those of the official script, and stratified ones."""

import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from phantomgrad_suite.data.folds import authors_split, stratified_split

FOLDS, SEED = 10, 42


@pytest.fixture
def labels():
    """As many labels as COX2 has, 22 % of them of class one."""
    return (torch.rand(467, generator=torch.Generator().manual_seed(7)) < 0.22).long()


def all_folds(make, labels):
    return [make(labels, fold, FOLDS, SEED) for fold in range(FOLDS)]


@pytest.mark.parametrize("make", [authors_split, stratified_split])
def test_parts_are_disjoint_and_complete(make, labels):
    """The parts of a fold are disjoint, and over all folds every graph is tested once."""
    splits = all_folds(make, labels)
    for parts in (*splits, [split.test for split in splits]):
        assert torch.equal(torch.cat(parts).sort().values, torch.arange(467))


def test_authors_folds_follow_the_official_script(labels):
    """Seed, shuffle the data set, then split positions by the labels in *file* order."""
    torch.manual_seed(SEED)
    order = torch.randperm(len(labels))
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    positions = list(splitter.split(torch.zeros(len(labels)).numpy(), labels.numpy()))
    for split, (train, test) in zip(all_folds(authors_split, labels), positions, strict=True):
        assert torch.equal(split.train, order[torch.from_numpy(train)])
        assert torch.equal(split.test, order[torch.from_numpy(test)])
        assert len(split.validation) == 0


def test_stratified_folds_keep_the_share_of_each_class(labels):
    """The validation part is the next fold."""
    splits = all_folds(stratified_split, labels)
    for fold, split in enumerate(splits):
        for part in split:
            expected = len(part) * labels.double().mean()
            assert labels[part].sum() == pytest.approx(expected, abs=1.0)
        assert torch.equal(split.validation, splits[(fold + 1) % FOLDS].test)
