"""Every data set refuses settings out of range, and names the command that fetches its files."""

import math

import pytest

from phantomgrad_suite.data import (
    PPI,
    Chains,
    Cifar10,
    GraphFolds,
    ImageNet,
    WikiText103,
)
from phantomgrad_suite.data.graphs.ppi import FILES
from phantomgrad_suite.runs.errors import MissingDataError, UserError

# The fixture that holds the files of a data set; the others are made, or refused before.
ROOTS = {
    **{Cifar10: "cifar_root", ImageNet: "folder_root"},
    **{GraphFolds: "small_tu", WikiText103: "text_root"},
}
NAMES = {Cifar10: "cifar10", GraphFolds: "COX2"}
SYNTHETIC = "ppi-synthetic"
AT_LEAST_0 = "must be finite and not negative"


def use(kind, **settings):
    data = kind(**settings)
    data.setup("fit")
    data.facts()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Chains, {"chains_per_class": 3}, r"length must be at least 320 nodes .* 2 x 3 x 10 = 60"),
        (Chains, {"length": 1}, r"dataset\.length must be at least 2, got 1"),
        (Chains, {"noise": -1.0}, rf"dataset\.noise {AT_LEAST_0}"),
        (Chains, {"noise": math.nan}, rf"dataset\.noise {AT_LEAST_0}"),
        (GraphFolds, {"fold": -1}, r"dataset.fold must lie in \[0, 10\), got -1"),
        (GraphFolds, {"fold": 10}, r"dataset.fold must lie in \[0, 10\), got 10"),
        (GraphFolds, {"folds": 1}, "dataset.folds must be at least 2, got 1"),
        (GraphFolds, {"split": "random"}, "split must be 'authors' or 'stratified', got 'random'"),
        (GraphFolds, {"attributes": "maybe"}, "attributes must be true, false or null, got 'may"),
        (GraphFolds, {"batch_size": 0}, "dataset.batch_size must be at least 1, got 0"),
        *(
            (GraphFolds, {"batch_size": size}, f"batch_size must be an integer, got {size!r}")
            for size in (1.5, "many", None)
        ),
        *(
            (GraphFolds, {"test_edge_weight": weight}, f"test_edge_weight {AT_LEAST_0}, got")
            for weight in (math.nan, math.inf, -1.0, "2")
        ),
        (PPI, {"name": "ppi"}, "dataset.name must be 'PPI' or 'ppi-synthetic', got 'ppi'"),
        (PPI, {"scale": 0.5}, "dataset.scale must be 1 for PPI itself, got 0.5"),
        (PPI, {"name": SYNTHETIC, "scale": 0}, r"dataset.scale must be in \(0, 1\], got 0"),
        (PPI, {"name": SYNTHETIC, "scale": 1.5}, r"dataset.scale must be in \(0, 1\], got 1.5"),
        (PPI, {"seed": -1}, "dataset.seed must be at least 0, got -1"),
        (Cifar10, {"name": "cifar100"}, "'cifar10' or 'cifar10-8x8', got 'cifar100'"),
        (Cifar10, {"batch_size": 0}, r"dataset\.batch_size must be at least 1, got 0"),
        (Cifar10, {"validation": -1}, r"dataset\.validation must be at least 0, got -1"),
        (Cifar10, {"validation": 9}, r"dataset.validation must lie in \[10, 90\] .* 9"),
        (Cifar10, {"validation": 91}, r"dataset.validation must lie in \[10, 90\] .* 91"),
        (Cifar10, {"subset": 11}, r"dataset\.subset must be at most 10, got 11"),
        (ImageNet, {"protocol": "dali"}, "must be 'mdeq' or 'phantom', got 'dali'"),
        (ImageNet, {"validation": 2}, r"validation must lie in \[3, 9\] .*, got 2"),
        (ImageNet, {"batch_size": 0}, r"dataset\.batch_size must be at least 1, got 0"),
        (ImageNet, {"workers": -1}, r"dataset\.workers must be at least 0, got -1"),
        (
            WikiText103,
            {"name": "wikitext2"},
            "must be 'wikitext103' or 'wikitext103-characters', got",
        ),
        (WikiText103, {"batch_size": 0}, "dataset.batch_size must be at least 1, got 0"),
        (WikiText103, {"segments_per_epoch": -1}, "segments_per_epoch must be at least 1, got -1"),
    ],
)
@pytest.mark.usefixtures("float32")
def test_settings_out_of_range_are_refused(request, kind, settings, message):
    if kind is not Chains:
        root = request.getfixturevalue(ROOTS.get(kind, "tmp_path"))
        settings = {"root": str(root), "name": NAMES.get(kind), **settings}
    known = {name: value for name, value in settings.items() if name != "name" or value}
    with pytest.raises((UserError, ValueError), match=message):
        use(kind, **known)


FETCH = "fetch it with `python scripts/fetch_data.py"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (GraphFolds, "MUTAG", rf"^MUTAG is not in .*: {FETCH} MUTAG` \(or, without network"),
        (PPI, "PPI", f"PPI lacks {', '.join(FILES)} in .*/ppi/raw: {FETCH[:13]}"),
        (Cifar10, "cifar10", f"cifar10 is not in .*: {FETCH} CIFAR10`"),
        (WikiText103, "wikitext103", r"lacks .*wiki.train.* scripts/fetch_data.py wiki"),
    ],
)
def test_missing_files_name_the_command(tmp_path, kind, name, message):
    with pytest.raises(MissingDataError, match=message):
        use(kind, root=str(tmp_path), name=name)
