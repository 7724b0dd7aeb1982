"""Tables of runs: values beside the paper's, and runs that are kept apart."""

import re
from dataclasses import replace

import pytest
from graph_data import REPOSITORY
from report.conftest import gradient_of, record, rows, runs_table

from phantomgrad_suite.report.baselines import Baseline
from phantomgrad_suite.report.catalogue import entry_of
from phantomgrad_suite.report.document import latex
from phantomgrad_suite.report.frame import evaluations
from phantomgrad_suite.report.results import table_of_runs
from phantomgrad_suite.runs.identity import SCALES
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import Result

NPG = {"dataset": "Toy", "model": "IGNN", "method": "NPG"}
LOST = {"result": Result.missing("accuracy", "max"), "curves": {}, "diverged": {"step": 8}}


def config_of(gradient):
    return {"label": {"reduced": []}, "gradient": gradient_of(gradient)}


def columns(found, *headings):
    return [[row[heading] for heading in headings] for row in found]


def test_values_stand_next_to_those_of_the_paper(results):
    results.add("table9/toy_implicit", "seed42-fold0", [0.85, 0.8, 0.75])
    results.add("table9/toy_implicit", "seed42-fold1", [0.6, 0.75, 0.75])
    result = Result("accuracy", 0.9, 1, 0.7, 0.8, 2)
    results.add("table9/honest/toy_implicit", "seed42-fold0", [0.9, 0.8, 0.7], result=result)
    headings = ("Method", "Paper", "Best", "Last", "Selected", "n")
    assert columns(results.rows("table9"), *headings) == [
        ["Implicit", "84.1 ± 2.9", "80.0 ± 7.1", "75.0 ± 0.0", "—", "2"],
        ["UPG A(5, 0.5)", "83.9 ‡", *"————"],
        ["Implicit", "—", "90.0", "70.0", "80.0", "1"],
    ]
    first, cost = results.table("table9").sections
    assert [title.split(",")[0] for title, _ in first.blocks] == [
        *("As in the paper", "Stratified folds")
    ]
    assert rows(cost)[0] == {
        **{"Data set": "Toy", "Method": "Implicit"},
        **{"f / solve": "14.0", "Adjoint / solve": "17.0"},
        "Peak memory": "512 MiB (process)",
    }
    assert "- ‡ Paper: best of three runs.\n" in results.markdown("table9")


def test_every_footnote_has_a_mark_of_its_own(results):
    results.numbers = [
        replace(number, row=f"table9/{i}", line=i, note=f"note {i}")
        for i, number in enumerate(results.numbers[:1] * 4)
    ]
    marks = [row["Paper"].split()[-1] for row in results.rows("table9")]
    assert marks == ["‡", "§", "¶", "‡‡"]


def test_rows_follow_the_paper_then_their_gradients_and_numbers_in_their_names(results):
    """Gradients are those of the configuration, whatever a row is called."""
    small, large = ({"dataset": "Toy", "model": model, "method": ""} for model in ("A", "B"))
    gradients = {"one": "upg_k9_d0.5", "two": "upg_k5_d1.0", "three": "npg_k1_d0.5", "four": ""}
    records = [
        record(f"t/{row}", "seed0", [0.5], label=small, config=config_of(gradient))
        for row, gradient in gradients.items()
    ]
    records += [record(f"t/j{n}", "seed0", [0.5], label=large) for n in (10, 9)]
    names = [*runs_table("t", records).experiments["row"].str.removeprefix("t/")]
    assert names == ["four", "two", "one", "three", "j9", "j10"]
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


def test_what_all_rows_on_some_data_have_in_common_is_said_once():
    runs = [record(f"t/a_{row}", "seed0", [0.5], **SHORT) for row in ("implicit", "upg_k5_d0.5")]
    first, _ = runs_table("t", runs).sections
    assert columns(rows(first), "Method") == [["Implicit"]] * 2
    assert first.notes[0] == "Toy, all rows: reduced: trainer.max_epochs=1."
    assert not any(note.startswith("[…]") for note in first.notes)


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
        ["Implicit [no better than the baseline]", "48.4 (RBF-SVM)"],
        ["t/c", "—"],
    ]
    assert [
        note for note in table.sections[0].notes if note.startswith("[no better than the baseline]")
    ]


def test_costs_are_in_units_of_f_and_tell_where():
    """Two steps an epoch, the first one pretraining; old records have no times of f."""
    curves = {"seconds/step_cpu": [0.1, 0.5, 0.3], "seconds/f_cpu": [None, 0.01, 0.01]}
    gpu = {"processor": "a CPU", "threads": 1, "accelerator": "NVIDIA H200", "processes": 8}
    memory = {"peak_bytes": 1, "kind": "cuda"}
    runs = [
        record("t/a", "seed0", [0.5], curves=curves, seconds={"step_cpu": 0.15}),
        record("t/a", "seed1", [0.5]),
        record("t/b", "seed0", [0.5], environment=gpu, memory=memory),
        record("t/c", "seed0", [0.5], environment={**gpu, "processes": 4}),
    ]
    cost = runs_table("t", runs).sections[1]
    assert columns(rows(cost), "f / step")[:2] == [["20.0 [1/2]"], ["—"]]
    assert cost.notes[-1] == (
        "Run on: 8 x NVIDIA H200; a CPU, 1 thread; a CPU, 4 processes of 1 thread."
    )


def test_searches_have_the_best_value_of_their_objective(results):
    tune = {"objective": "validation/loss", "direction": "minimize"}
    curves = {"test/accuracy": [0.9], "validation/loss": [1.3, 0.31, None]}
    config = {"runtime": {"tune": tune}, "gradient": gradient_of("upg_k5_d0.5")}
    results.write(record("tune/toy/upg", "seed0", [0.9], curves=curves, config=config))
    (row,) = results.rows("tune")
    assert row["Searched by"] == "validation loss 0.3100"
    worse = {**curves, "validation/loss": [0.5]}
    config = {**config, "gradient": gradient_of("npg_k5_d0.5")}
    results.write(record("tune/toy/npg", "seed0", [0.9], curves=worse, config=config, label=NPG))
    assert "- Chosen on validation data: Implicit." in results.markdown("tune")


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
    labels = re.findall(r"\\label\{(.*)\}", latex(table))
    assert labels == ["tab:table9", *(f"tab:table9-{i}" for i in (2, 3, 4))]
    named = replace(table, entry=replace(table.entry, title="k_1 & 5 % 10^2"))
    assert r"\caption{Table9: k\_1 \& 5 \% 10\textasciicircum{}2: CPU edition}" in latex(named)
    changes = [REDUCED, SMALL, "trainer.max_epochs=1"]
    row = "cpu/table9/toy_implicit"
    both.add(**small(row, "seed0-eeee", [0.1], changes=changes, config_hash="eeee"))
    method = "Implicit [reduced: trainer.max_epochs=1]"
    assert [r["Best"] for r in both.rows("table9") if r["Method"] == method] == ["10.0"]


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
    at_image = trained("ImplicitGradient", 1, **{"adjoint/evaluations": [7, 7]})
    at_image.config["gradient"]["at"] = "image"
    assert evaluations(at_image).tolist() == [180, 340]  # two evaluations
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
