"""What all puzzles share: parts, cache, augmentation, resumption; and each family's rules."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from training import composed

from phantomgrad_reasoners import boards, sudoku
from phantomgrad_reasoners.puzzles import PuzzleData
from phantomgrad_reasoners.sudoku import Sudoku
from phantomgrad_reasoners.words import Words, multiplication_table
from phantomgrad_suite.jobs.build import build_data

pytestmark = pytest.mark.usefixtures("float32")
SMALL = {"batch_size": 8, "train": 40, "validation": 12, "test": 12}
KINDS = {
    "sudoku4": lambda **more: Sudoku(side=4, **more),
    "sudoku6": lambda **more: Sudoku(side=6, extra_clues=4, **more),
    "sudoku9": lambda **more: Sudoku(side=9, **more),
    "words": lambda **more: Words(group="S3", length=4, test_lengths=(6,), **more),
}
FINGERPRINTS = {
    "sudoku4": "8357a8d0e75e0aaa",
    "sudoku6": "6ce3b50db588c82d",
    "words": "01c84ef5dddcfee4",
}
AUGMENTED = ("sudoku4", "sudoku6", "sudoku9")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(tmp_path_factory.mktemp("data"))


@pytest.fixture
def data(kind, root, monkeypatch):
    if kind == "sudoku9":
        monkeypatch.setattr(sudoku, "_DRAWN", 80)  # of which 64 are kept; each takes 20 ms
    return KINDS[kind](root=root, **SMALL)


def images(data, part, seed=0):
    batch = data.parts[part].__getitems__(list(range(len(data.parts[part]))))
    return data.augmented(batch, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_same_seed_gives_the_same_bytes(kind, data, root):
    """They are these on every machine, and are made once."""
    assert data.facts()["fingerprint"][7:23] == FINGERPRINTS[kind]
    again = KINDS[kind](root=root, **SMALL)
    again.make = lambda: pytest.fail("made again")
    assert again.facts() == data.facts()
    other = KINDS[kind](root=root, seed=1, **SMALL)
    assert other.facts()["fingerprint"] != data.facts()["fingerprint"]
    more = KINDS[kind](root=root, **{**SMALL, "train": 50})
    for name in data.evaluation_sets:
        assert all(map(torch.equal, more.parts[name].tensors, data.parts[name].tensors))
    shared = zip(more.parts["train"].tensors, data.parts["train"].tensors, strict=True)
    assert all(torch.equal(a[:40], b) for a, b in shared)


def test_own_generators_have_puzzles_of_their_own(tmp_path):
    """The cache distinguishes them from the class that they inherit from, by their name."""

    class Mirrored(Sudoku):
        def draws(self):
            for draw in super().draws():
                yield draw._replace(inputs=draw.inputs[:, ::-1], targets=draw.targets[:, ::-1])

    settings = {"root": str(tmp_path), "side": 4, **SMALL}
    plain, own = (kind(**settings).parts["test"].tensors[0] for kind in (Sudoku, Mirrored))
    assert not torch.equal(plain, own)
    assert torch.equal(plain, own.flip(1))


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_complete_and_differ(data):
    sizes = {name: len(part) for name, part in data.parts.items()}
    assert sizes.items() >= {"train": 40, "validation": 12, "test": 12}.items()
    facts = data.facts()
    assert {name: facts[name] for name in sizes} == sizes
    known = set()
    for part in data.parts.values():
        inputs = part.tensors[0].numpy()
        assert inputs.min() > 0
        assert inputs.max() < data.sizes()["vocabulary"]
        known |= {row.tobytes() for row in inputs}
    assert len(known) == sum(sizes.values())


@pytest.mark.parametrize("kind", AUGMENTED)
def test_augmentations_stay_in_their_part(kind, data):
    """No test puzzle is an augmentation of a training puzzle, nor its grid, beyond 4 x 4."""
    found = {}
    for part in data.parts:
        for seed in range(3):
            inputs, targets = (tokens.numpy() for tokens in images(data, part, seed))
            board = boards.layout(data.side)
            if data.side == 4:
                classes = boards.puzzle_classes(boards.bits_of(inputs - 1), board).tolist()
            else:
                classes = boards.grid_classes(boards.bits_of(targets - 1), board).tolist()
            previous = found.setdefault(part, set(classes))
            assert previous == set(classes)
    for one, other in combinations(found.values(), 2):
        assert not one & other


@pytest.mark.parametrize("kind", AUGMENTED)
def test_augmented_boards_are_boards(data):
    """They keep one solution, which is augmented in the same way; and all digits move."""
    plain = data.parts["train"].tensors[0]
    inputs, targets = images(data, "train")
    solution = boards.solve((inputs - 1).tolist(), data.side).first
    assert (targets.numpy() == boards.digits_of(solution).T + 1).all()
    assert torch.equal((inputs > 1).sum(dim=1), (plain > 1).sum(dim=1))
    assert (inputs != plain).any(dim=1).float().mean() > 0.9
    assert not torch.equal(images(data, "train", seed=1).inputs, inputs)


@pytest.mark.parametrize(("group", "order"), [("S3", 6), ("A5", 60), ("S5", 120)])
def test_groups_multiply_as_permutation_matrices(group, order):
    """The numbers of elements are those of their matrices in the order of the first columns."""
    table, degree = multiplication_table(group), int(group[1])
    generators = [np.roll(np.eye(degree), 1, axis=0)]
    generators += [np.eye(degree)[[1, 2, 0, *range(3, degree)]]]
    if group[0] == "S":
        generators += [np.eye(degree)[[1, 0, *range(2, degree)]]]
    elements = {np.eye(degree).tobytes(): np.eye(degree)}
    queue = [*elements.values()]
    for element in queue:
        for new in (generator @ element for generator in generators):
            if new.tobytes() not in elements:
                elements[new.tobytes()] = new
                queue.append(new)
    # The matrix of a maps the j-th unit vector to the a(j)-th: columns hold a(0), a(1), ...
    ordered = sorted(elements.values(), key=lambda matrix: matrix.argmax(axis=0).tolist())
    assert table.shape == (order, order) == (len(ordered),) * 2
    for a, b in np.random.RandomState(0).randint(order, size=(200, 2)):
        assert (ordered[a] @ ordered[b] == ordered[table[a, b]]).all()


def test_words_have_their_products(root):
    data = Words(root=root, group="A5", length=5, test_lengths=(9, 7), **SMALL)
    assert data.evaluation_sets == ("test", "validation", "test/length7", "test/length9")
    last = Words(root=root, group="A5", length=5, test_lengths=(7, 9), labels="last", **SMALL)
    table = multiplication_table("A5")
    for name, length in {"train": 5, "test": 5, "test/length7": 7, "test/length9": 9}.items():
        words, products, _ = data.parts[name].tensors
        assert words.shape[1] == length
        for word, product in zip((words - 1).tolist(), (products - 1).tolist(), strict=True):
            assert product[0] == word[0]
            assert product[1:] == [table[p, a] for p, a in zip(product, word[1:], strict=False)]
        ends = last.parts[name].tensors[1]
        assert (ends[:, :-1] == -100).all()
        assert torch.equal(ends[:, -1], products[:, -1])


@pytest.mark.parametrize("kind", ["sudoku4"])
def test_processes_draw_apart_and_stay_in_step(data):
    """The puzzles differ between processes, but torch's generator has one state after them."""
    batch, drawn = next(iter(data.loader("test"))), []
    for rank in range(2):
        data.trainer = SimpleNamespace(training=True, world_size=2, global_rank=rank)
        torch.manual_seed(3)
        drawn.append((data.on_after_batch_transfer(batch, 0).inputs, torch.get_rng_state()))
    (first, state), (second, other) = drawn
    assert torch.equal(state, other)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("kind", ["sudoku6"])
def test_evaluation_and_augment_false_keep_the_puzzles(data, root):
    batch = next(iter(data.loader("test")))
    data.trainer = SimpleNamespace(training=False, world_size=1, global_rank=0)
    assert data.on_after_batch_transfer(batch, 0) is batch
    plain = KINDS["sudoku6"](root=root, augment=False, **SMALL)
    plain.trainer = SimpleNamespace(training=True, world_size=1, global_rank=0)
    assert plain.on_after_batch_transfer(batch, 0) is batch
    assert plain.facts() == data.facts()


@pytest.mark.parametrize(
    ("kind", "settings"), [(Sudoku, {"side": 9}), (Words, {"group": "S3", "length": 4})]
)
def test_synthetic_batches_read_and_write_nothing(kind, settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, synthetic = kind(root="", **SMALL, **settings), kind.synthetic(**SMALL, **settings)
    batch = synthetic.draw(torch.Generator())
    assert batch.inputs.shape == batch.targets.shape == (8, data.positions)
    assert synthetic.sizes() == data.sizes()
    assert not list(tmp_path.iterdir())


def test_the_configuration_of_9_x_9_boards_builds(workplace):
    """The settings of its file are those of its class; nothing is made before it is used."""
    data = build_data(composed(["dataset=sudoku9"]))
    assert isinstance(data, PuzzleData)
    assert data.test_batch_size == 256
    assert not list(workplace.path.iterdir())
