"""One run of two processes: on one node, each with its own batch statistics, and on two."""

import lightning
import pytest
from interruptions import checkpoint, untimed
from training import SMALL_MDEQ, composed, finish_two, needs_gloo

from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.runs.records import read_record

pytestmark = needs_gloo

NARROW = (
    *SMALL_MDEQ,
    *("solver.max_evaluations=6", "adjoint.max_evaluations=6", "dataset.batch_size=2"),
    *("dataset.validation=30", "trainer.max_epochs=4", "runtime.checkpoint.every_n_epochs=1"),
)
TWO = ("trainer=ddp", "trainer.devices=2")
ON_NODES = ("experiment=digits/one_step", "trainer=ddp", "trainer.max_epochs=1")


def evaluated_alone(folder, *overrides):
    """What one process finds with the weights and statistics that a run has saved."""
    config = composed(list(overrides))
    data = build_data(config)
    task = build_task(config, data)
    task.load_state_dict(checkpoint(folder)["state_dict"])
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    found = lightning.Trainer(accelerator="cpu", **quiet).validate(task, data, verbose=False)
    return {name: value for part in found for name, value in part.items()}


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
def test_processes_evaluate_the_model_that_is_saved(workplace):
    """With the statistics of each process, losses would differ by 4e-4 here."""
    here = (
        "experiment=figure2/cifar10_upg_k5_d0.5",
        *("dataset=cifar10_8x8", "dataset.subset=10", "+trainer.check_val_every_n_epoch=4"),
        *NARROW,
    )
    assert "sync_dist" not in finish_two(workplace.path, *here, *TWO)
    (path,) = workplace.path.glob("runs/**/record.json")
    curves = read_record(path).curves
    assert curves["train/loss"][-1] < curves["train/loss"][0]
    alone = evaluated_alone(path.parent, *here)
    for name in ("test/accuracy", "validation/accuracy", "validation/loss"):
        assert curves[name][-1] == pytest.approx(alone[name], rel=1e-5), name


def record_of(folder):
    (path,) = folder.glob("runs/**/record.json")
    return read_record(path)


def test_two_nodes_make_one_record(tmp_path):
    """It equals that of two processes on one node: the same parts of batches, the same curves."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    finish_two(one, *ON_NODES, "trainer.devices=2")
    finish_two(two, *ON_NODES, "trainer.devices=1", "trainer.num_nodes=2", nodes=2)
    ours, one_node = record_of(two), record_of(one)
    assert ours.result == one_node.result
    assert untimed(ours) == untimed(one_node)
    assert "trainer.num_nodes=2" in ours.changes
