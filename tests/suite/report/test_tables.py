"""Tables of runs: values beside the paper's, and runs that are kept apart."""

import pytest
from graph_data import REPOSITORY
from report.conftest import PUBLISHED, gradient_of, published, record, rows, runs_table

from phantomgrad_suite.report.baselines import Baseline
from phantomgrad_suite.report.catalogue import entry_of
from phantomgrad_suite.report.document import State, latex, markdown
from phantomgrad_suite.report.frame import evaluations, frame_of
from phantomgrad_suite.report.inputs import read_published
from phantomgrad_suite.report.results import table_of_runs
from phantomgrad_suite.report.tables import known_tables, load
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import SCALES
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import Result

RESULTS = REPOSITORY / "results"
LOST = {"result": Result.missing("accuracy", "max"), "curves": {}, "diverged": {"step": 8}}


def columns(found, *headings):
    return [[row[heading] for heading in headings] for row in found]


def test_values_stand_next_to_those_of_the_paper(results):
    results.add("table9/toy_implicit", "seed42-fold0", [0.85, 0.8, 0.75])
    results.add("table9/toy_implicit", "seed42-fold1", [0.6, 0.75, 0.75])
    result = Result("accuracy", 0.9, 1, 0.7, 0.8, 2)
    results.add("table9/honest/toy_implicit", "seed42-fold0", [0.9, 0.8, 0.7], result=result)
    headings = ("Method", "Paper", "Best", "Last", "Common (epoch)", "Selected", "n")
    assert columns(results.rows("table9"), *headings) == [
        ["Implicit", "84.1 ± 2.9", "80.0 ± 7.1", "75.0 ± 0.0", "77.5 ± 3.5 (2)", "—", "2"],
        ["UPG A(5, 0.5)", "83.9 ‡", *"—————"],
        ["Implicit", "—", "90.0", "70.0", "90.0 (1)", "80.0", "1"],
    ]
    first, cost = results.table("table9").sections
    assert [title.split(",")[0] for title, _ in first.blocks] == [
        *("As in the paper", "Stratified folds")
    ]
    assert rows(cost)[0] == {
        **{"Data set": "Toy", "Method": "Implicit", "Parameters": "37,634"},
        **{"f / solve": "14.0", "Adjoint / solve": "17.0"},
        "Peak memory": "512 MiB (process)",
    }
    assert "- ‡ Paper: best of three runs.\n" in results.markdown("table9")


def test_the_frame_of_runs_has_the_configuration_in_dotted_columns():
    runs = [record("t/a_upg_k5_d0.5", "seed0", [0.5]), record("t/a_implicit", "seed0", [0.7])]
    frame = frame_of([*runs, record("t/a_upg_k5_d0.5", "seed1", [0.6])])
    assert frame["gradient.steps"].tolist()[::2] == [5, 5]
    assert frame["family"].tolist() == ["UPG", "implicit", "UPG"]
    assert frame["experiment"].tolist() == [0, 1, 0]
    assert frame.groupby("experiment")["best"].mean().tolist() == [0.55, 0.7]


def test_rows_are_sorted_by_model_and_number_and_those_of_the_paper_come_first(results):
    small, large = ({"dataset": "Toy", "model": model, "method": ""} for model in ("A", "B"))
    records = [
        record(f"t/{row}", "seed0", [0.5], label=small) for row in ("d10", "d9", "d0.5", "implicit")
    ]
    table = runs_table("t", [record("t/b_implicit", "seed0", [0.5], label=large), *records])
    names = [*table.experiments["row"].str.removeprefix("t/")]
    assert names == ["implicit", "d0.5", "d9", "d10", "b_implicit"]
    results.add("table9/a_bptt", "seed0", [0.8], label={"dataset": "Toy", "method": "BPTT"})
    results.add("table9/toy_implicit", "seed0", [0.8])
    methods = [row["Method"] for row in results.rows("table9")]
    assert methods == ["Implicit", "UPG A(5, 0.5)", "BPTT"]


DATA = {"data": {"name": "Toy", "fingerprint": "sha256:bbbbbbbb33"}}
SHORT = {"protocol": "reduced", "changes": ["trainer.max_epochs=1"]}


@pytest.mark.parametrize(
    ("row", "changes", "methods"),
    [
        ("implicit", DATA, ["Implicit [data aaaaaaaa]", "Implicit [data bbbbbbbb]"]),
        ("upg_k5_d0.5", DATA, ["Implicit [data aaaaaaaa]", "UPG A(5, 0.5) [data bbbbbbbb]"]),
        (
            "implicit",
            {"config_hash": "eeeeeeee44"},
            ["Implicit [configuration cccccccc]", "Implicit [configuration eeeeeeee]"],
        ),
        ("implicit", SHORT, ["Implicit", "Implicit [reduced: trainer.max_epochs=1]"]),
    ],
)
def test_other_data_configurations_and_protocols_are_never_in_one_cell(
    results, row, changes, methods
):
    results.add("table9/toy_implicit", "seed0", [0.8])
    results.add(f"table9/toy_{row}", "seed1", [0.4], **changes)
    found = columns(results.rows("table9"), "Method", "Best")[:2]
    assert found == [[methods[0], "80.0"], [methods[1], "40.0"]]
    assert "must not be compared" in results.markdown("table9")


def test_runs_on_other_data_are_not_compared_with_the_paper(results):
    spelled = {"dataset": "TOY", "model": "IGNN", "method": "NPG"}
    results.add("table9/toy_npg", "seed0", [0.8], label=spelled)
    label = {"dataset": "toy-jpeg", "model": "IGNN", "method": "Implicit"}
    results.add("table9/toy_implicit", "seed0", [0.8], label=label)
    assert columns(results.rows("table9"), "Data set", "Paper", "Best") == [
        ["Toy", "84.1 ± 2.9", "—"],
        ["Toy", "83.9 ‡", "—"],
        ["Toy", "—", "80.0"],  # another spelling of the same data
        ["toy-jpeg", "—", "80.0"],
    ]


def test_diverged_runs_and_missing_values_are_counted_and_no_mean_hides_them(results):
    lost = Result("accuracy", 0.6, 1, float("nan"))
    results.add("table9/toy_implicit", "seed0", [0.8])
    results.add("table9/toy_implicit", "seed1", [0.6, None], result=lost)
    results.add("table9/toy_upg_k5_d0.5", "seed0", [0.8])
    results.add("table9/toy_upg_k5_d0.5", "seed1", [0.8], **LOST)
    results.add("table9/toy_npg_k5_d0.5", "seed0", [0.8], **LOST)
    assert columns(results.rows("table9"), "Method", "Best", "Last", "n") == [
        ["Implicit", "70.0 ± 14.1", "80.0 [1/2]", "2"],
        ["UPG A(5, 0.5) [2 runs, 1 diverged]", "80.0 [1/2]", "80.0 [1/2]", "2"],
        ["Implicit [1 run, 1 diverged]", "—", "—", "1"],
    ]
    text = results.markdown("table9")
    assert "only m of the n runs" in text
    assert "so they flatter the row" in text


def test_rows_that_do_not_beat_the_baseline_are_marked():
    """By their best epochs, and a row on other data has no baseline."""
    baseline = Baseline("RBF-SVM", 0.484, metric_of("accuracy"))
    runs = [
        record("t/a", "seed0", [0.6, 0.4]),
        *(record("t/b", f"seed{i}", [0.4, best]) for i, best in enumerate((0.48, 0.485))),
        record("t/c", "seed0", [0.1], data={"fingerprint": "sha256:bb"}, label={"dataset": "X"}),
    ]
    known = {("sha256:aaaaaaaa11", "accuracy"): baseline}
    table = table_of_runs(entry_of("t"), [], runs, baselines=known)
    assert columns(rows(table.sections[0]), "Method", "Baseline") == [
        ["Implicit", "48.4 (RBF-SVM)"],
        ["Implicit [did not train]", "48.4 (RBF-SVM)"],
        ["t/c", "—"],
    ]
    assert [note for note in table.sections[0].notes if note.startswith("[did not train]")]


def test_the_common_epoch_is_one_that_all_runs_have():
    runs = [
        record("t/a", "seed0", [None, 0.8, None, 0.6]),
        record("t/a", "seed1", [None, 0.4, None, 0.7]),
        record("t/b", "seed0", [0.5]),
        record("t/b", "seed1", [0.5], curves={}),
    ]
    values = [3.0, 2.0, 2.5]
    words = record("t/c", "seed0", values, curves={"test/bits_per_word": values})
    words = words.__class__(
        **{**vars(words), "result": Result("bits_per_word", 2.0, 2, 2.5, mode="min")}
    )
    found = rows(runs_table("t", [*runs, words]).sections[0])
    assert columns(found, "Metric", "Common (epoch)") == [
        ["accuracy (%) ↑", "65.0 ± 7.1 (4)"],
        ["accuracy (%) ↑", "—"],
        ["bits per word ↓", "2.000 (2)"],
    ]


def test_costs_are_in_units_of_f_and_tell_where_and_how_busy():
    """Two steps an epoch, the first one pretraining; old records have no times of f."""
    curves = {"seconds/step_cpu": [0.1, 0.5, 0.3], "seconds/f_cpu": [None, 0.01, 0.01]}
    busy = {"step_cpu": 0.15, "epoch": 2.0, "epoch_cpu": 1.5}
    gpu = {"processor": "a CPU", "threads": 1, "accelerator": "NVIDIA H200", "processes": 8}
    memory = {"peak_bytes": 1, "kind": "cuda"}
    runs = [
        record("t/a", "seed0", [0.5], curves=curves, seconds=busy),
        record("t/b", "seed0", [0.5], environment=gpu, memory=memory),
        record("t/c", "seed0", [0.5], environment={**gpu, "processes": 4}),
    ]
    cost = runs_table("t", runs).sections[1]
    assert columns(rows(cost), "f / step", "CPU / wall")[:2] == [["20.0", "0.75"], ["—", "—"]]
    assert cost.notes[-1] == (
        "Run on: 8 x NVIDIA H200; a CPU, 1 thread; a CPU, 4 processes of 1 thread."
    )


def test_evaluations_with_another_memory_are_noted(results):
    """The note has the mean over the runs at their best epochs."""
    for seed, curve in {"seed0": [30.0, 26.0], "seed1": [29.0, 28.0]}.items():
        curves = {"test/perplexity": curve, "test/perplexity_at_480": [v - 1 for v in curve]}
        result = Result("perplexity", min(curve), 2, curve[-1], mode="min")
        results.add("table9/words", seed, curve, curves=curves, result=result)
    text = results.markdown("table9")
    assert "26.0 with a memory of 480 positions in evaluation (best epoch of each run)." in text


def test_searches_have_the_best_value_of_their_objective(results):
    tune = {"objective": "validation/loss", "direction": "minimize"}
    curves = {"test/accuracy": [0.9], "validation/loss": [1.3, 0.31, None]}
    config = {"runtime": {"tune": tune}, "gradient": gradient_of("upg_k5_d0.5")}
    results.write(record("tune/toy/upg", "seed0", [0.9], curves=curves, config=config))
    (row,) = results.rows("tune")
    assert row["Searched by"] == "validation loss 0.3100"


# The CPU edition


REDUCED, SMALL = "half of everything, 2 epochs (50)", "8 x 8 pixels"


def small(row, instance, values, **changes):
    """Return the changes of a record in the CPU edition."""
    label = {"dataset": "Small", "model": "IGNN", "method": "its label"}
    facts = {
        "label": label,
        "protocol": "reduced",
        "changes": [REDUCED, SMALL],
        "config": {"label": {**label, "scale": "cpu", "reduced": [REDUCED]}},
        "data": {"name": "small", "fingerprint": "sha256:dddddddd", "reduced": SMALL},
    }
    return {"row": row, "instance": instance, "values": values, **facts, **changes}


@pytest.fixture
def both(results):
    """A table with a full run of one of the paper's two rows, and the CPU edition of both."""
    results.add("table9/toy_implicit", "seed0", [0.8])
    for seed, value in enumerate((0.5, 0.6)):
        results.add(**small("cpu/table9/toy_implicit", f"seed{seed}", [value]))
    results.add(**small("cpu/table9/toy_upg_k5_d0.5", "seed0", [0.7]))
    return results


def test_a_scale_is_a_block_under_the_papers_and_never_next_to_its_numbers(both):
    assert {*SCALES} == {path.stem for path in (REPOSITORY / "configs/scale").glob("*.yaml")}
    assert columns(both.rows("table9"), "Data set", "Method", "Paper", "Best", "n") == [
        ["Toy", "Implicit", "84.1 ± 2.9", "80.0", "1"],
        ["Toy", "UPG A(5, 0.5)", "83.9 ‡", "—", "—"],
        ["Small", "Implicit", "—", "55.0 ± 7.1", "2"],  # the paper's method
        ["Small", "UPG A(5, 0.5)", "—", "70.0", "1"],
    ]
    table = both.table("table9")
    for part in table.sections:
        assert [title for title, _ in part.blocks] == ["As in the paper", "CPU edition"]
    note = f"CPU edition, Small: {REDUCED}, {SMALL}. Not to be compared with the paper's numbers."
    assert both.markdown("table9").count(note) == 1
    assert r"\caption{Table9: CPU edition}" in latex(table)
    changes = [REDUCED, SMALL, "trainer.max_epochs=1"]
    row = "cpu/table9/toy_implicit"
    both.add(**small(row, "seed0-eeee", [0.1], changes=changes, config_hash="eeee"))
    method = "Implicit [reduced: trainer.max_epochs=1]"
    assert [r["Best"] for r in both.rows("table9") if r["Method"] == method] == ["10.0"]


def test_the_state_tells_what_exists(both):
    table = both.table("table9")
    command = table.entry.command
    assert table.commands == [command, f"{command} SCALE=cpu"]
    text = "1 of 2 rows in full, 1 in the CPU edition"
    assert (table.state, table.missing) == (State.PARTLY, text)
    both.archive.file("table9/toy_implicit").unlink()
    table = both.table("table9")
    assert (table.state, table.missing) == (State.SCALED, "2 of 2 rows")
    ours = record("figure2/cox2_implicit", "seed0", [0.5])  # counts as made on CIFAR-10 only
    scaled = record(**small("cpu/figure2/cifar10_implicit", "seed0", [0.5]))
    assert runs_table("figure2", [ours]).state == State.PARTLY
    assert runs_table("figure2", [ours, scaled]).state == State.SCALED


# Costs of training


def trained(target, steps=5, **curves):
    """Return a run of two epochs, of ten steps each."""
    config = {
        "label": {"reduced": []},
        "gradient": {"_target_": f"phantomgrad.{target}", "steps": steps},
        **{"task": {}, "model": {}, "solver": {"_target_": "phantomgrad.FixedPoint"}},
    }
    weights, solves = {"last": {"epoch": 2, "step": 20}}, {"solver/evaluations": [8, 6]}
    return record("t/a", "seed0", [0.5], config=config, weights=weights, curves=solves | curves)


def test_evaluations_are_those_of_solves_gradients_and_pretraining():
    upg, npg = trained("UnrolledPhantomGradient"), trained("NeumannPhantomGradient")
    assert evaluations(upg).tolist() == [180, 340]  # 8 + 5 + 5, 6 + 10
    assert evaluations(npg).tolist() == [140, 260]  # 8 + 1 + 5
    exact = trained("ImplicitGradient", 1, **{"adjoint/evaluations": [7, 7]})
    assert evaluations(exact).tolist() == [170, 320]  # 8 + 7 + 1 + 1
    exact.config["task"] |= {"pretraining_steps": 12, "pretraining_layers": 3}
    exact.curves["solver/evaluations"] = exact.curves["adjoint/evaluations"] = [None, 6]
    assert evaluations(exact).tolist() == [60, 60 + 2 * 6 + 8 * 14]
    for settings, more in (
        ({"frequency": 0.5}, 2),
        ({"frequency": 0.5, "iterations": 6}, 5),
        ({"_target_": "x.FixedPointRegularisation"}, 2),
    ):
        exact.config["task"] = {"jacobian": settings}
        assert evaluations(exact)[1] - evaluations(exact)[0] == 10 * (14 + more)


def test_evaluations_of_recorded_solves_and_of_recorded_parts_of_a_recursion():
    through = trained("BackpropThroughSolver")
    assert evaluations(through).tolist() == [160, 280]  # 8 + 8, 6 + 6
    through.config["solver"]["_target_"] = "phantomgrad.Reversible"
    assert evaluations(through).tolist() == [240, 420]
    recursion = trained("UnrolledPhantomGradient", 1)
    recursion.config["model"] = {"n": 4, "recorded": 2}
    assert evaluations(recursion).tolist() == [94, 168]  # 8 + 1 + 2 / 5


def test_speeds_have_a_column_for_each_hardware(results):
    """It is there even if the rows were not run; the heading says whether they were reduced."""
    results.print_in_paper(
        "table9/toy_implicit,table9,Toy,IGNN,Implicit,38K,speed,1.0,,x,\n"
        "table9/toy_upg_k5_d0.5,table9,Toy,IGNN,UPG,38K,speed,1.7,,x,\n"
    )
    timed = [{"row": "table9/toy_implicit", "baseline": None, "faster": {}}]
    faster = {"baseline": "table9/toy_implicit", "faster": {"step": 2.0}}
    timed.append({"row": "table9/toy_upg_k5_d0.5", **faster})
    environment = {"processor": "a CPU", "threads": 1, "accelerator": "a GPU"}
    for device, protocol in (("cuda", "full"), ("cpu", "reduced")):
        facts = {"environment": environment, "config": {"device": device}, "protocol": protocol}
        numbers = {"rows": timed}
        row = f"throughput/{device}"
        results.write(published("throughput/cpu", row=row, numbers=numbers, **facts))
    headings = ["paper", "step on a GPU", "step on a CPU, 1 thread, reduced"]
    found = columns(results.rows("table9"), *(f"Speed, {heading}" for heading in headings))
    assert found == [["1.0×", "1.00×", "1.00×"], ["1.7×", "2.00×", "2.00×"]]  # noqa: RUF001


def test_latex_has_every_row_and_escapes_what_it_cannot_read(results):
    results.add("table9/toy_implicit", "seed0", [0.8, 0.7])
    label = {"dataset": "Toy", "model": "A & B_1", "method": "50% UPG"}
    results.add("table9/other", "seed0", [0.8], label=label)
    text = latex(results.table("table9"))
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert r"A \& B\_1" in text
    assert r"50\% UPG" in text
    assert text.count("\\\\\n") == 3 + 2 + 2  # rows and headings


def test_the_authors_log_is_three_runs_of_220_epochs():
    curves = read_published(RESULTS / "published_curves.csv")["table3/cifar10_upg"]
    assert [len(run) for run in curves["test/accuracy"]] == [220] * 3
    assert [max(run) for run in curves["test/accuracy"]] == [0.9489, 0.9509, 0.9521]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("row,epoch,x\n", "must have the columns row, run, epoch, got row, epoch, x"),
        ("row,run,epoch,x\na,0,1,high\n", "line 2: x must be a number, got 'high'"),
        ("row,run,epoch,x\na,0,1\n", "line 2: x must be a number, got None"),
    ],
)
def test_a_wrong_line_of_the_authors_log_is_named(tmp_path, text, problem):
    assert read_published(tmp_path / "curves.csv") == {}
    (tmp_path / "curves.csv").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=problem):
        read_published(tmp_path / "curves.csv")


@pytest.mark.parametrize("key", known_tables(RESULTS, PUBLISHED))
def test_tables_of_this_repository_are_those_of_its_records(key):
    """``make report`` updates them after a change of records or of the report."""
    table = load(RESULTS, key, PUBLISHED)
    assert (RESULTS / "tables" / f"{key}.md").read_text(encoding="utf-8") == markdown(table)
