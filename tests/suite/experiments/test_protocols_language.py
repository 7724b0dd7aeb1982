"""Rows follow the paper's protocol on WikiText-103, and those made small keep to it."""

from __future__ import annotations

import pytest
from experiments.rows import ROWS, effective

# PreLN, memory, dropout and that of the attention, steps of the solvers, weight of the penalty
LANGUAGE: dict[str, tuple[bool, int, float, float, int, int | None, float | None]] = {
    "postln_implicit": (False, 150, 0.05, 0.0, 30, 40, None),
    "postln_upg": (False, 150, 0.05, 0.0, 30, None, None),
    "preln_jr_implicit": (True, 300, 0.06, 0.01, 14, 14, 2.0),
    "preln_jr_upg_14": (True, 300, 0.06, 0.01, 14, None, 0.1),
    "preln_jr_upg_20": (True, 300, 0.06, 0.01, 20, None, 0.1),
}


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("leaf", LANGUAGE)
def test_table3_on_language_follows_its_protocol(leaf: str) -> None:
    config = effective(f"table3/wikitext103_{leaf}")
    pre_norm, memory, dropout, attention, steps, adjoint, weight = LANGUAGE[leaf]
    model, solver, task = config["model"], config["solver"], config["task"]
    sizes = [model[k] for k in ("width", "heads", "inner", "cutoffs", "shrinkage")]
    assert sizes == [700, 10, 48_000, [20_000, 40_000, 200_000], 4]
    assert (model["pre_norm"], model["memory_length"], model["raw_residual"]) == (
        *(pre_norm, memory),
        False,
    )
    assert (model["dropout"], model["attention_dropout"]) == (dropout, attention)
    # A step of Broyden is an evaluation; the start is one too.
    assert (solver["max_evaluations"], solver["tol"], solver["stop"]) == (
        *(steps + 1, 1e-3),
        "relative",
    )
    if adjoint is None:
        assert (config["gradient"]["steps"], config["gradient"]["damping"]) == (5, 0.8)
    else:
        solver = config["adjoint"]
        assert (config["runtime"]["run"]["gradient"], config["gradient"]["solver"]) == (
            "implicit",
            solver,
        )
        assert (solver["max_evaluations"], solver["tol"], solver["stop"]) == (
            *(adjoint + 1, 1e-3),
            "relative",
        )
    assert (task["pretraining_steps"], task["pretraining_layers"]) == (32_000, 2)
    assert task["evaluation_memory"] is None
    if weight is None:
        assert (task["jacobian"], task["budget_jitter"]) == (None, 0)
    else:
        penalty = {k: v for k, v in task["jacobian"].items() if k != "_target_"}
        assert penalty == {
            "weight": weight,
            "frequency": 0.4,
            "increase": 0.1,
            "every": 30_000,
            "from_step": 32_000,
            "samples": 1,
            "through_equilibrium": False,
        }
        assert task["budget_jitter"] == 2
    dataset, trainer, optimizer = (config[k] for k in ("dataset", "trainer", "optimizer"))
    assert trainer["max_epochs"] * dataset["segments_per_epoch"] == 300_000
    assert (trainer["devices"], dataset["batch_size"], dataset["segment_length"]) == (4, 14, 150)
    assert (dataset["name"], dataset["test_batch_size"]) == ("wikitext103", 16)
    assert (trainer["gradient_clip_val"], trainer["precision"]) == (0.25, "32-true")
    assert (optimizer["_target_"], optimizer["lr"]) == ("torch.optim.Adam", 2.5e-4)
    assert optimizer["weight_decay"] == 0
    assert (config["schedule"]["warmup"], task["schedule_by"]) == (16_000, "step")
    assert config["seed"] == 1111
    assert config["label"]["reduced"] == []


@pytest.mark.usefixtures("workplace")
def test_small_rows_on_language_are_those_of_the_paper_made_small() -> None:
    """The same solvers, gradients and dropout, on texts that are never called WikiText-103."""
    for row in (row for row in ROWS if row.startswith(("lm/", "wikitext/"))):
        config = effective(row)
        leaf = row.split("/")[1].removeprefix("pydoc_")
        for ours, papers in (("jr_upg_k5_d0.8", "jr_upg_14"), ("upg_k5_d0.8", "upg")):
            leaf = leaf.replace(ours, papers)
        large = effective(f"table3/wikitext103_{leaf}")
        assert config["solver"] == large["solver"]
        assert config["gradient"] == large["gradient"]
        for key in ("pre_norm", "dropout", "attention_dropout", "raw_residual"):
            assert config["model"][key] == large["model"][key]
        small, big = config["task"], large["task"]
        assert small["budget_jitter"] == big["budget_jitter"]
        assert (small["jacobian"] is None) is (big["jacobian"] is None)
        if small["jacobian"] is not None:  # of the paper's weights a small model learns little
            assert small["jacobian"]["weight"] <= big["jacobian"]["weight"]
            assert small["jacobian"]["frequency"] == big["jacobian"]["frequency"]
        assert config["label"]["dataset"] in ("Python help", "WikiText-103 (valid)")
        assert config["dataset"].get("name") != "wikitext103"
