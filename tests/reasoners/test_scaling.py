"""Test-time scaling: rules of selection in closed form, invariants, and the study of a run."""

import hashlib
from dataclasses import replace

import pytest
import torch

from phantomgrad import Steps, UnrolledPhantomGradient
from phantomgrad.models import RecursiveReasoner
from phantomgrad_reasoners.puzzles import PuzzleBatch
from phantomgrad_reasoners.scaling import by_segment, lost, majority, residual, selected
from phantomgrad_reasoners.traces import auroc, random_start, trace
from phantomgrad_suite.jobs.build import prepare
from phantomgrad_suite.jobs.compose import as_dict
from phantomgrad_suite.jobs.trained import configuration, evaluate, read_released
from phantomgrad_suite.runs.archive import Archive
from phantomgrad_suite.runs.configs import RESULTS
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Record, read_any, write_record


def test_majority_is_of_whole_answers_and_the_earliest_of_equals():
    words = ["abbac", "abcba", "abcde", "ccccc", "abbbb"]  # the answers to a puzzle, by start
    letters = torch.tensor([[*word.encode()] for word in words]).T  # (R, B)
    found = majority(torch.stack([letters, torch.zeros_like(letters)], dim=-1))
    assert found.tolist() == [0, 0, 0, 0, 1]
    # By cells, 1 1 would win: two answers agree in each cell. No whole answer is given twice.
    split = torch.tensor([[[2, 3]], [[1, 4]], [[5, 1]], [[1, 1]]])
    assert majority(split).tolist() == [0]


def test_rules_choose_what_they_say():
    boards = torch.tensor([[[1], [1]], [[2], [2]], [[2], [3]]])  # three starts, two puzzles
    solved = torch.tensor([[True, False], [False, False], [False, True]])
    logits = torch.tensor([[0.2, 0.3], [0.1, 0.2], [0.3, 0.1]])
    state = torch.tensor([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]])
    residuals = torch.stack([logits, state], dim=-1)
    rates = selected(boards, solved, residuals)
    assert rates == {
        "single": pytest.approx(2 / 6),
        "vote": 0.0,  # 2 twice; then the first of three
        "logits": 0.5,  # start 1, which is wrong, and start 2
        "state": 0.5,  # always start 0
        "any": 1.0,
    }
    alone = selected(boards[:1], solved[:1], residuals[:1])
    assert set(alone.values()) == {0.5}


@pytest.mark.parametrize(("segments", "means"), [(5, [7 / 3, 14 / 3]), (3, [6, 1.5]), (2, [8, 1])])
def test_residual_is_the_mean_of_the_last_three_changes(segments, means):
    changes = torch.tensor([[0.0, 0.0], [8.0, 1.0], [4.0, 2.0], [2.0, 4.0], [1.0, 8.0]])
    assert residual(changes[:, None], segments).tolist() == [pytest.approx(means)]


def test_area_under_the_curve_and_its_interval():
    """Of 2 x 3 pairs, four are won and one is a tie; the placements are 1, 1/2 and 1/2, 3/4, 1."""
    area, low, high = auroc(torch.tensor([4.0, 2.0]), torch.tensor([1.0, 2.0, 3.0])).values()
    wins = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.5, 0.0]], dtype=torch.float64)
    error = 1.96 * (wins.mean(1).var() / 2 + wins.mean(0).var() / 3).sqrt().item()
    assert (area, low) == pytest.approx((0.75, 0.75 - error))
    assert high == pytest.approx(min(1.0, 0.75 + error))
    sure = auroc(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 2.0]))
    assert sure == {"auroc": 1.0, "low": 1.0, "high": 1.0}
    assert {*auroc(torch.tensor([3.0]), torch.tensor([1.0, 2.0])).values()} == {None}


def test_a_solution_that_is_left_is_lost():
    """Though it may be found again; a puzzle that is never solved loses none."""
    solved = torch.tensor([[1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    assert lost(solved) == 0.25
    rows = [*by_segment(solved)]
    assert [row["segments"] for row in rows] == [1, 2, 3]
    assert [row["accuracy"] for row in rows] == [0.5, 0.5, 0.75]


def reasoner(**settings):
    torch.manual_seed(0)
    model = RecursiveReasoner(
        *(6, 4, Steps(0), UnrolledPhantomGradient(1, 1.0)), **{"width": 8, "n": 2, **settings}
    )
    return model.eval()


@pytest.mark.parametrize("n", [2, None])
def test_a_trace_is_the_plain_evaluation(n):
    """In all batches; the changes are those of logits and of all latents, by cell."""
    model = reasoner(n=n)
    tokens = torch.randint(1, 6, (5, 4))
    targets = torch.where(torch.rand(5, 4) < 0.9, -100, tokens)  # few cells have a label
    batches = [PuzzleBatch(tokens[rows], targets[rows]) for rows in (slice(0, 3), slice(3, 5))]
    found = trace(model, batches, 3)
    state, before = None, None
    for segment in range(3):
        with torch.no_grad():
            logits, halting, state = model(tokens, state)
        answer = logits.argmax(dim=-1)
        assert torch.equal(found.answers[segment], answer)
        wrong = (answer != targets) & (targets != -100)
        assert torch.equal(found.solved[segment], ~wrong.any(dim=1))
        now = logits, torch.cat(state, dim=-1) if n else state
        moved = [
            (a - b).square().sum(dim=-1).sqrt().mean(dim=-1)
            for a, b in zip(now, before or now, strict=True)
        ]
        torch.testing.assert_close(found.changes[segment], torch.stack(moved, dim=-1))
        assert torch.equal(found.halting[segment], halting)
        before = now
    torch.testing.assert_close(found.end, now[1][None])
    assert found.solved.any()
    assert not found.solved.all()


def test_random_starts_are_distributed_as_the_saved_ones():
    """A vector for all cells of a puzzle, of deviation 1, cut at two sigma of the uncut one."""
    tokens = torch.ones(2000, 4, dtype=torch.long)
    for s in random_start(reasoner(), tokens):
        assert s.shape == (2000, 4, 8)
        assert torch.equal(s, s[:, :1].expand_as(s))
        assert s[:, 0].std().item() == pytest.approx(1.0, abs=0.02)
        assert s.abs().max() < 2.2737
        assert not torch.equal(s[0], s[1])
    own = random_start(reasoner(random_start=True), tokens)
    assert not torch.equal(own[0][:, 0], own[0][:, 1])


SIZE = (
    *("dataset.train=64", "dataset.validation=8", "dataset.test=24", "dataset.batch_size=16"),
    *("model.width=16", "trainer.max_epochs=2", "task.segments=2", "task.evaluated_segments=[]"),
)
ROW = ("experiment=reasoning/sudoku6", *SIZE, "measure.example=null")
SMALL = ("setting.depth=2", "setting.puzzles=32", "setting.starts=3")


def measured(workplace, *overrides):
    return read_any(workplace.study("study=scaling", *SMALL, *overrides) / "record.json")


@pytest.fixture
def released_run(workplace):
    """The record of a run with the released weights, and the value that an evaluation gives."""
    record, weights, _ = read_released("reasoning/sudoku6")
    folder = workplace.path / "runs" / "reasoning" / "sudoku6" / "seed0"
    (folder / "weights").mkdir(parents=True)
    torch.save(weights, folder / "weights" / "selected.pt")
    content = (folder / "weights" / "selected.pt").read_bytes()
    kept = {**record.weights["selected"], "sha256": hashlib.sha256(content).hexdigest()}
    config = configuration(record)
    config.runtime.dataset.root, config.runtime.trainer.accelerator = "data", "cpu"
    config.dataset.update({"train": 64, "validation": 8, "test": 24, "extra_clues": 0})  # hard ones
    config.task.segments = 2
    found = evaluate(config, prepare(config), weights, kept["step"], kept["step"])
    record = replace(
        record,
        weights={"last": kept, "selected": kept},
        config=as_dict(config),
        curves={"test/exact_accuracy": [found["test/exact_accuracy"]] * kept["epoch"]},
    )
    write_record(record, folder / "record.json")
    return record


def test_plain_evaluation_is_that_of_the_record(workplace, released_run):
    """One start is the plain evaluation, and the segments of training give the recorded value.

    More puzzles are further ones: the recorded value is compared on those of the run.
    """
    found = measured(workplace)
    (check,) = found.checks
    assert check.value < 1e-6
    assert 0 < released_run.curves["test/exact_accuracy"][-1] < 1
    numbers = found.numbers
    sets = ["test", "test/known_grids"]
    assert [(row["set"], row["n"]) for row in numbers["sets"]] == [(name, 32) for name in sets]
    depth = {(row["set"], row["segments"]): row["accuracy"] for row in numbers["depth"]}
    assert [*depth] == [(name, n) for name in sets for n in range(1, 5)]
    breadth = {
        (row["set"], row["segments"], row["starts"], row["rule"]): row["accuracy"]
        for row in numbers["breadth"]
    }
    assert {key[:3] for key in breadth} == {
        (s, n, r) for s in sets for n in (2, 4) for r in (1, 2, 3)
    }
    for (name, n, starts, _), accuracy in breadth.items():
        assert accuracy <= breadth[name, n, starts, "any"]
        if starts == 1:
            assert accuracy == depth[name, n]
    assert {row["kind"] for row in numbers["errors"]} == {"logits", "state"}
    for row in numbers["errors"]:
        assert row["unsolved"] == round(32 * (1 - depth[row["set"], row["segments"]]))
    assert numbers["weights"] == released_run.weights["selected"]


def test_a_run_of_one_segment_has_no_residual(workplace, released_run):
    """Nothing has changed since a segment before; the residual was the mean of no changes."""
    config = {**released_run.config, "task": {**released_run.config["task"], "segments": 1}}
    path = workplace.path / "runs/reasoning/sudoku6/seed0/record.json"
    write_record(replace(released_run, config=config), path)
    with pytest.raises(UserError, match="must have 2 segments or more, for residuals, got 1 in"):
        measured(workplace)


def test_models_with_noise_and_other_puzzles(workplace):
    """The same seed repeats the study; there is no recorded value to compare with."""
    random = ("model.random_start=true", "model.noise=0.01", "dataset.side=4")
    folder = workplace.train(*ROW, *random)
    run = f"run={folder.relative_to(workplace.path / 'runs')}"
    first = measured(workplace, run)
    again = measured(workplace, run, "runtime.paths.runs=other", "runtime.setting.runs=runs")
    assert first.numbers == again.numbers
    assert first.checks == []
    assert [row["set"] for row in first.numbers["sets"]] == ["test"]


def test_bad_input_is_one_sentence(workplace):
    with pytest.raises(UserError, match="seed5 holds no finished run: train it first, or name"):
        workplace.study("study=scaling", "run=reasoning/sudoku6/seed5")
    record = Archive(RESULTS / "records").of(Record, "reasoning/sudoku6")[0]
    task = {"_target_": "phantomgrad_suite.tasks.GraphClassification"}
    other = replace(record, config={**record.config, "task": task})
    for content, problem in (
        (replace(record, weights={}), "has no weights: runtime.keep_weights was false"),
        (other, "a run of Reasoning, got reasoning/sudoku6/seed5 of GraphClassification"),
    ):
        write_record(content, workplace.path / "runs/reasoning/sudoku6/seed5/record.json")
        with pytest.raises(UserError, match=problem):
            workplace.study("study=scaling", "run=reasoning/sudoku6/seed5")
