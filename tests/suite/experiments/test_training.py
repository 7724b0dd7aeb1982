"""Rows train: a step and an evaluation through the real entry, on small data."""

import re

import pytest
from experiments.rows import ROWS, text
from training import SMALL_MDEQ, SMALL_TRANSFORMER

ON_IMAGES = r"table1/|figure2/cifar10|table3/(swapped/)?cifar10|table3/imagenet"
ON_TEXT = r"table3/(swapped/)?wikitext103"
ON_PPI, ON_PUZZLES = "table4/ppi", ("reasoning/", "hierarchy/", "penalties/", "looped/words")
NARROW = (
    *SMALL_MDEQ,
    *("solver.max_evaluations=3", "adjoint.max_evaluations=3", "dataset.batch_size=4"),
)
TINY = (
    *SMALL_TRANSFORMER,
    *("solver.max_evaluations=4", "adjoint.max_evaluations=4"),
    *("dataset.batch_size=2", "dataset.segment_length=9", "task.pretraining_steps=0"),
    *("++trainer.strategy=auto", "trainer.devices=1", "+trainer.limit_val_batches=2"),
)
EMBEDDED_TEXT = "dataset.batch_size=2", "+trainer.limit_val_batches=2"
PUZZLES = (
    *("model.width=16", "dataset.train=8", "dataset.validation=4", "dataset.test=4"),
    *("dataset.batch_size=2", "task.segments=2", "task.evaluated_segments=[]"),
    "++trainer.check_val_every_n_epoch=1",
)
LOOPED = (
    *("model.width=16", "dataset.batch_size=2", "dataset.segment_length=9"),
    *("trainer.limit_val_batches=2", "task.evaluated_segments=[2]"),
)
MEASURED = ("measure.precision.iterations=2", "measure.precision.adjoint.max_evaluations=5")
# Gradients and optimizers are trained by other tests.
CHOICE = re.compile(r"override /(?:callbacks|dataset|model|solver\S*|task): \w+")


def choices_of(row):
    """What a row chooses in its own file, and where it stands; other rows there choose the same."""
    return row.split("/")[0], *CHOICE.findall(text(row))


# A row that chooses nothing of these has the parts of the row it inherits.
DIFFERENT = {choices_of(row): row for row in reversed(ROWS) if CHOICE.search(text(row))}.values()


@pytest.fixture(scope="module")
def puzzle_root(tmp_path_factory):
    return str(tmp_path_factory.mktemp("puzzles"))


def small(row, request):
    """What makes a row small, with one process in the place of several GPUs."""

    def root(fixture):
        return f"runtime.dataset.root={request.getfixturevalue(fixture)}"

    measured = MEASURED if row.startswith("figure2/") else ()
    if row.startswith("table3/imagenet"):
        alone = ("trainer.strategy=auto", "trainer.devices=1", "runtime.dataset.workers=0")
        return [*NARROW, *alone, root("folder_root")]
    if re.match(ON_IMAGES, row):
        return [*NARROW, *measured, root("cifar_root")]
    if re.match(ON_TEXT, row):
        penalty = ["task.jacobian.frequency=1"] * ("_jr_" in row)
        return [*TINY, root("text_root"), "task.other_memories=[3]", *penalty]
    if row.startswith(ON_PUZZLES):
        files = ["dataset=sudoku6", "trainer.precision=32-true"] * ("extreme" in row)
        return [*PUZZLES, *files, root("puzzle_root")]
    if row.startswith(ON_PPI):
        return ["model.channels=[8,4]", "dataset=ppi_synthetic", "dataset.scale=0.005"]
    own = {"looped": LOOPED, "attractor": EMBEDDED_TEXT}.get(row.split("/")[0], ())
    return [*own, *measured, *[root("small_tu")] * row.startswith(("table4/", "figure2/cox2"))]


@pytest.mark.parametrize("row", DIFFERENT)
@pytest.mark.filterwarnings("ignore::phantomgrad.AdjointWarning")
def test_row_trains(workplace, request, row):
    short = ("trainer.max_epochs=1", "+trainer.limit_train_batches=1")
    record = workplace.record(f"experiment={row}", *short, *small(row, request))
    assert (record.row, record.protocol) == (row, "reduced")
    assert set(record.label) == {"dataset", "model", "method"}
    on_text, on_ppi = "wikitext103" in record.data["name"], row.startswith(ON_PPI)
    metric = "perplexity" if on_text else "micro_f1" if on_ppi else "accuracy"
    if row.startswith(ON_PUZZLES):
        metric = "cell_accuracy" if "words" in row else "exact_accuracy"
    assert record.result.metric == metric
    assert not on_text or 10 < record.result.best < 1e4
    assert ("train/jacobian" in record.curves) is ("_jr_" in row)
    if on_ppi:
        assert record.label["dataset"] == record.data["name"] == "ppi-synthetic"
        assert record.result.selected == record.result.best
