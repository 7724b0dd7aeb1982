"""Every data set refuses settings out of range, and names the command that fetches its files."""

import math
from functools import partial

import pytest

from phantomgrad_suite.data import PPI, Chains, Cifar10, GraphFolds, ImageNet, WikiText103
from phantomgrad_suite.data.graphs.ppi import FILES
from phantomgrad_suite.runs.errors import MissingDataError, UserError

COX2 = partial(GraphFolds, name="COX2")
# The fixture that holds the files of a data set; the others are made, or refused before.
ROOTS = {
    **{Cifar10: "cifar_root", ImageNet: "folder_root"},
    **{COX2: "small_tu", WikiText103: "text_root"},
}


def use(kind, **settings):
    data = kind(**settings)
    data.setup("fit")
    data.facts()


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Chains, {"chains_per_class": 3}, r"length must be at least 320 nodes .* 2 x 3 x 10 = 60"),
        (Chains, {"noise": math.nan}, r"dataset\.noise must be finite and not negative"),
        (COX2, {"fold": 10}, r"dataset.fold must lie in \[0, 10\), got 10"),
        (COX2, {"split": "random"}, "split must be 'authors' or 'stratified', got 'random'"),
        (COX2, {"batch_size": 1.5}, "batch_size must be an integer, got 1.5"),
        (PPI, {"scale": 0.5}, "dataset.scale must be 1 for PPI itself, got 0.5"),
        (
            PPI,
            {"name": "ppi-synthetic", "scale": 1.5},
            r"dataset.scale must be in \(0, 1\], got 1.",
        ),
        (Cifar10, {"validation": 9}, r"dataset.validation must lie in \[10, 90\] .* 9"),
        (Cifar10, {"subset": 11}, r"dataset\.subset must be at most 10, got 11"),
        (ImageNet, {"protocol": "dali"}, "must be 'mdeq' or 'phantom', got 'dali'"),
        (ImageNet, {"workers": -1}, r"dataset\.workers must be at least 0, got -1"),
        (WikiText103, {"name": "wikitext2"}, "must be 'wikitext103' or 'wikitext103-characters'"),
        (WikiText103, {"segments_per_epoch": -1}, "segments_per_epoch must be at least 1, got -1"),
    ],
)
@pytest.mark.usefixtures("float32")
def test_settings_out_of_range_are_refused(request, kind, settings, message):
    if kind is not Chains:
        root = request.getfixturevalue(ROOTS.get(kind, "tmp_path"))
        settings = {"root": str(root), **settings}
    with pytest.raises((UserError, ValueError), match=message):
        use(kind, **settings)


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
