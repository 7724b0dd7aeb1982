"""Every data set offers a validation part, which shares no sample with the others."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Any

import pytest
from training import composed

import phantomgrad_suite.data
from phantomgrad_suite.data import DataModule, PuzzleData
from phantomgrad_suite.jobs.build import build_data

TEXTS = ("dataset.batch_size=2", "dataset.segment_length=9")


@dataclass(frozen=True)
class Case:
    """The settings that give a data set a validation part, and how to identify its samples.

    Attributes:
        kind: the class.
        row: an experiment on it.
        root: the fixture that holds its files, if it has any.
        settings: what makes the validation part, and the data small.
        samples: the names of the samples of each part.
    """

    kind: str
    row: str
    root: str | None
    settings: tuple[str, ...]
    samples: Callable[[Any], dict[str, list[Any]]]


def masked(data: Any) -> dict[str, list[Any]]:
    return {name: mask.nonzero().squeeze(1).tolist() for name, mask in data._batch.masks.items()}


def graphs(data: Any) -> dict[str, list[Any]]:
    return {n: [g.features.numpy().tobytes() for g in part] for n, part in data._graphs.items()}


def folds(data: Any) -> dict[str, list[Any]]:
    return {name: part.tolist() for name, part in data._split._asdict().items()}


def images(data: Any) -> dict[str, list[Any]]:
    data.setup("fit")
    return {
        name: [image.numpy().tobytes() for image in part.tensors[0]]
        for name, part in data._parts.items()
    }


def files(data: Any) -> dict[str, list[Any]]:
    return {name: [path for path, _ in part] for name, part in data._parts.items()}


def tokens(data: Any) -> dict[str, list[Any]]:
    """Tokens by their places in one text; the parts must make up the sources, and no more."""
    lengths = {name: len(part) for name, part in data.corpus.parts.items()}
    assert sum(lengths.values()) == whole_text(data)
    ends = dict(zip(lengths, accumulate(lengths.values()), strict=True))
    return {name: list(range(ends[name] - length, ends[name])) for name, length in lengths.items()}


def whole_text(data: Any) -> int:
    """The tokens of the sources, ends of lines included."""
    if isinstance(data, phantomgrad_suite.data.PydocTopics):
        from pydoc_data.topics import topics

        lines = [line for text in topics.values() for line in text.splitlines()]
    else:
        lines = [line for path in data._files.values() for line in path.read_text().splitlines()]
    return sum(len(line.split()) + 1 for line in lines)


CASES = [
    Case("Chains", "chains/upg_k5_d0.5", None, (), masked),
    Case(
        *("PPI", "table4/ppi_upg_k5_d0.5", None),
        ("scale=cpu", "dataset.scale=0.005"),
        graphs,
    ),
    Case("GraphFolds", "table4/cox2_upg_k5_d0.5", "small_tu", ("dataset.split=stratified",), folds),
    Case("Digits", "digits/upg_k5_d0.5", None, (), images),
    Case(
        *("Cifar10", "table1/upg_k5_d0.5_no_dropout", "jpeg_root"),
        ("dataset=cifar10_jpeg", "dataset.validation=20"),
        images,
    ),
    Case(
        *("ImageNet", "table3/imagenet_upg", "folder_root"),
        ("+dataset.validation=3", "runtime.dataset.workers=0"),
        files,
    ),
    Case(
        *("PydocTopics", "table3/wikitext103_postln_upg", None),
        ("scale=cpu", "dataset=pydoc_topics", "~dataset.name", *TEXTS),
        tokens,
    ),
    Case(
        *("WikiText103", "table3/wikitext103_postln_upg", "text_root"),
        ("scale=cpu", "+dataset.validation_share=0.2", *TEXTS),
        tokens,
    ),
]


@pytest.fixture
def overrides(case: Case, request: pytest.FixtureRequest) -> list[str]:
    root = [f"runtime.dataset.root={request.getfixturevalue(case.root)}"] if case.root else []
    return [f"experiment={case.row}", *root, *case.settings]


def test_every_data_set_is_here() -> None:
    """Puzzles have tests of their own."""
    kinds = [getattr(phantomgrad_suite.data, name) for name in phantomgrad_suite.data.__all__]
    modules = [k for k in kinds if issubclass(k, DataModule) and not issubclass(k, PuzzleData)]
    bases = {base for k in modules for base in k.__mro__[1:]}
    classes = {k.__name__ for k in modules if k not in bases}
    assert {case.kind for case in CASES} == classes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
@pytest.mark.usefixtures("workplace")
def test_parts_are_disjoint(case: Case, overrides: list[str]) -> None:
    """No sample is in two of the parts, and the facts of the record count them."""
    data = build_data(composed(overrides))
    assert type(data).__name__ == case.kind
    assert set(data.evaluation_sets) == {"test", "validation"}
    parts = {name: set(samples) for name, samples in case.samples(data).items()}
    assert set(parts) == {"train", "validation", "test"}
    assert all(parts.values())
    for one, other in combinations(parts.values(), 2):
        assert not one & other
    data.setup("fit")
    assert all(len(next(iter(loader))) for loader in data.val_dataloader())
    facts = data.facts()
    assert {name: facts[name] for name in parts} == {n: len(part) for n, part in parts.items()}
