"""The facts of the paper's protocols that no file states by itself, and how rows differ."""

import pytest
from experiments.rows import ROWS, effective
from training import composed

from phantomgrad_suite.runs.identity import decisive, hash_config
from phantomgrad_suite.runs.lengths import in_steps

pytestmark = pytest.mark.usefixtures("workplace")
CPU = ["scale=cpu"]
TEXT = "table3/wikitext103"


@pytest.mark.parametrize(
    ("row", "steps", "pretraining"),
    [
        # Epochs of 391 batches of 128 images, of 10,010 of 4 x 32, of 5,000 segments.
        (["table1/implicit"], 50 * 391, 3_000),
        (["table3/cifar10_implicit"], 220 * 391, 20_000),
        (["table3/imagenet_implicit"], 100 * 10_010, 500_000),
        (["table3/wikitext103_postln_implicit"], 300_000, 32_000),
        # 157 batches of 64 thumbnails, and 400 segments.
        (["table1/implicit", *CPU], 25 * 157, 602),
        (["table3/cifar10_implicit", *CPU], 20 * 157, 730),
        (["table3/wikitext103_preln_jr_upg_14", *CPU], 8 * 400, 341),
    ],
)
def test_pretraining_takes_the_steps_of_the_paper(row, steps, pretraining):
    config = composed([f"experiment={row[0]}", *row[1:]])
    assert in_steps(config.task.pretraining_steps, steps) == pretraining
    if "segments_per_epoch" in config.dataset:
        assert config.dataset.segments_per_epoch * config.trainer.max_epochs == steps


def test_penalty_grows_by_the_steps_of_the_paper():
    row = "experiment=table3/wikitext103_preln_jr_implicit"
    for scale, steps, every, memory in (([], 300_000, 30_000, 300), (CPU, 3_200, 320, 128)):
        config = composed([row, *scale])
        assert in_steps(config.task.jacobian.every, steps) == every
        assert config.task.jacobian.from_step == config.task.pretraining_steps
        assert config.model.memory_length == memory == 2 * config.dataset.segment_length


@pytest.mark.parametrize(
    ("row", "rate"),
    [("table1/implicit", 0.001), ("table1/sgd", 0.1), ("table3/swapped/cifar10_upg", 0.001)],
)
def test_learning_rates_follow_the_batch_size(row, rate):
    assert composed([f"experiment={row}"]).optimizer.lr == rate
    assert composed([f"experiment={row}", *CPU]).optimizer.lr == rate / 2
    assert composed([f"experiment={row}", "dataset.batch_size=256"]).optimizer.lr == 2 * rate


@pytest.mark.parametrize(
    ("row", "forward", "adjoint"),
    [
        # A step of Broyden is an evaluation; the start is one too.
        ("table1/implicit", (23, 1e-5, "absolute", "rms"), (23, 2e-10, "absolute", "rms")),
        ("table3/cifar10_implicit", (19, 1e-5, "absolute", "rms"), (19, 2e-10, "absolute", "rms")),
        ("table3/imagenet_implicit", (27, 1e-5, "absolute", "rms"), (27, 2e-10, "absolute", "rms")),
        (f"{TEXT}_postln_implicit", (31, 1e-3, "relative", "l2"), (41, 1e-3, "relative", "l2")),
        (f"{TEXT}_preln_jr_implicit", (15, 1e-3, "relative", "l2"), (15, 1e-3, "relative", "l2")),
        ("table4/cox2_implicit", (300, 3e-6, "absolute", "max"), (300, 1e-4, "relative", "max")),
        ("table4/ppi_implicit", (300, 3e-6, "relative", "max"), (300, 1e-4, "relative", "max")),
    ],
)  # fmt: skip
def test_solves_spend_the_budgets_of_the_paper(row, forward, adjoint):
    config = effective(row)
    for part, budget in (("solver", forward), ("adjoint", adjoint)):
        keys = ("max_evaluations", "tol", "stop", "norm")
        assert tuple(config[part][key] for key in keys) == budget


@pytest.mark.parametrize("row", [row for row in ROWS if "/swapped/" in row])
def test_swapped_rows_differ_from_a_row_of_the_paper_in_the_gradient_alone(row):
    """Each has the settings of the row of the other gradient."""
    implicit, upg = "implicit", "upg_k5_d0.5_no_dropout"
    others = {
        "table1/swapped/implicit": f"table1/{upg}",
        "table1/swapped/upg_k5_d0.5": f"table1/{implicit}",
        "table3/swapped/cifar10_implicit": "table3/cifar10_upg",
        "table3/swapped/cifar10_upg": "table3/cifar10_implicit",
        "table3/swapped/wikitext103_preln_jr_implicit": "table3/wikitext103_preln_jr_upg_14",
        "table3/swapped/wikitext103_preln_jr_upg_14": "table3/wikitext103_preln_jr_implicit",
    }
    own, other = (decisive(effective(name)) for name in (row, others[row]))
    used = {"gradient", "adjoint", "model"}  # UPG has no adjoint solve, whatever its row states
    unrolled = ("pretraining_layers",)  # which count only where there is pretraining
    for config in (own, other):
        if not config["task"]["pretraining_steps"]:
            config["task"] = {k: v for k, v in config["task"].items() if k not in unrolled}
    assert {k: v for k, v in own.items() if k not in used} == {
        k: v for k, v in other.items() if k not in used
    }
    assert {k: v for k, v in own["model"].items() if k != "gradient"} == {
        k: v for k, v in other["model"].items() if k != "gradient"
    }
    assert own["gradient"]["_target_"] != other["gradient"]["_target_"]


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("figure2/")])
def test_figure2_looks_at_rows_of_other_tables(row):
    """The protocols are equal, and some hundred points are measured."""
    data, _, method = row.removeprefix("figure2/").partition("_")
    config = effective(row)
    plain = method if method == "implicit" else f"{method}_no_dropout"
    looked_at = {"digits": f"digits/{method}", "cifar10": f"table1/{plain}"}
    other = effective(looked_at.get(data, f"table4/{data}_{method}"))
    assert hash_config({**config, "measure": {}}) == hash_config(other)
    # Batches of 64 of 1,078 digits, of 128 of the 421 graphs of a fold and of 50,000 images.
    steps = config["trainer"]["max_epochs"] * {"digits": 17, "cox2": 4, "cifar10": 391}[data]
    points = steps / config["measure"]["precision"]["every_n_steps"]
    assert points == {"digits": 85, "cox2": 100, "cifar10": 156.4}[data]
    assert other["measure"] == {}
