"""Tables of runs: values, dashes, and runs that are kept apart."""

import re
from functools import partial

import numpy as np
import pytest
from graph_data import REPOSITORY
from report.conftest import PUBLISHED, record, rows, runs_table

from phantomgrad_suite.report import markdown
from phantomgrad_suite.report.baselines import Baseline
from phantomgrad_suite.report.catalogue import entry_of
from phantomgrad_suite.report.command import known_tables, load
from phantomgrad_suite.report.experiments.results import table_of_runs
from phantomgrad_suite.report.figures import plot, plots_of
from phantomgrad_suite.runs.metrics import metric_of
from phantomgrad_suite.runs.records import Result

RESULTS = REPOSITORY / "results"


def test_values_stand_next_to_those_of_the_paper(results):
    results.add("table9/toy_implicit", "seed42-fold0", [0.85, 0.8, 0.75])
    results.add("table9/toy_implicit", "seed42-fold1", [0.6, 0.75, 0.75])
    result = Result("accuracy", 0.9, 1, 0.7, 0.8, 2)
    results.add("table9/honest/toy_implicit", "seed42-fold0", [0.9, 0.8, 0.7], result=result)
    headings = ("Method", "Paper", "Best", "Last", "Common (epoch)", "Selected", "n")
    assert [[row[heading] for heading in headings] for row in results.rows("table9")] == [
        ["Implicit", "84.1 ± 2.9", "80.0 ± 7.1", "75.0 ± 0.0", "77.5 ± 3.5 (2)", "—", "2"],
        ["UPG A(5, 0.5)", "83.9 ‡", *"—————"],
        ["Implicit", "—", "90.0", "70.0", "90.0 (1)", "80.0", "1"],
    ]
    titles = [block.title for block in results.table("table9").blocks]
    assert [title.split(",")[0] for title in titles] == ["As in the paper", "Stratified folds"]
    assert rows(results.table("table9").sections[1])[0] == {
        **{"Data set": "Toy", "Method": "Implicit", "Parameters": "37,634"},
        **{"f / solve": "14.0", "Adjoint / solve": "17.0"},
        "Peak memory": "512 MiB (process)",
    }
    assert "- ‡ Paper: best of three runs.\n" in results.markdown("table9")


def test_rows_are_sorted_by_model_and_number():
    small, large = ({"dataset": "Toy", "model": model, "method": ""} for model in ("A", "B"))
    records = [
        record(f"t/{row}", "seed0", [0.5], label=small) for row in ("d10", "d9", "d0.5", "implicit")
    ]
    table = runs_table("t", [record("t/b_implicit", "seed0", [0.5], label=large), *records])
    names = [line.row.removeprefix("t/") for line in table.lines]
    assert names == ["implicit", "d0.5", "d9", "d10", "b_implicit"]


def test_a_step_is_measured_in_evaluations_of_f():
    """Two steps an epoch, the first one pretraining; a run whose f was not timed has a dash."""
    curves = {"seconds/step_cpu": [0.1, 0.5, 0.3], "seconds/f_cpu": [None, 0.01, 0.01]}
    timed = record("t/a", "seed0", [0.5], curves=curves, seconds={"step_cpu": 0.15})
    table = runs_table("t", [timed, record("t/b", "seed0", [0.5])])
    assert [row["f / step"] for row in rows(table.sections[1])] == ["20.0", "—"]


def test_the_cost_tells_how_busy_the_machine_was():
    """Old records have no CPU time of epochs."""
    seconds = [{"epoch": 2.0, "epoch_cpu": cpu} for cpu in (1.0, 2.0)] + [{"epoch": 2.0}]
    runs = [record("t/a", f"seed{i}", [0.5], seconds=s) for i, s in enumerate(seconds)]
    (row,) = rows(runs_table("t", runs).sections[1])
    assert row["CPU / wall"] == "0.75"


def test_rows_that_do_not_beat_the_baseline_are_marked():
    """By their best epochs, and where another row is on other data, it has no baseline."""
    baseline = Baseline("RBF-SVM", 0.484, metric_of("accuracy"))
    known = {("sha256:aaaaaaaa11", "accuracy"): baseline}
    runs = [
        record("t/a", "seed0", [0.6, 0.4]),
        record("t/b", "seed0", [0.45, 0.48]),
        record("t/b", "seed1", [0.40, 0.485]),
        record("t/c", "seed0", [0.1], data={"fingerprint": "sha256:bb"}, label={"dataset": "X"}),
    ]
    table = table_of_runs(entry_of("t"), [], runs, baselines=known)
    found = {line.row: row for row, line in table.blocks[0].experiments}
    cells = [(row.text("Method"), row.text("Baseline")) for row in found.values()]
    assert cells == [
        ("Implicit", "48.4 (RBF-SVM)"),
        ("Implicit [did not train]", "48.4 (RBF-SVM)"),
        ("t/c", "—"),
    ]
    assert [note for note in table.sections[0].notes if note.startswith("[did not train]")]


def test_epochs_without_a_test_value_are_no_common_ones():
    runs = [
        record("t/a", "seed0", [None, 0.8, None, 0.6]),
        record("t/a", "seed1", [None, 0.4, None, 0.7]),
    ]
    (row,) = rows(runs_table("t", runs).sections[0])
    assert row["Common (epoch)"] == "65.0 ± 7.1 (4)"
    assert (row["Best"], row["Last"]) == ("75.0 ± 7.1", "65.0 ± 7.1")
    (plot,) = [p for p in plots_of(runs_table("t", runs)) if p.name == "t_curves"]
    by_column = {curve.column: (list(curve.x), list(curve.y)) for curve in plot.curves}
    assert by_column["Test"] == ([2, 4], pytest.approx([60, 65]))
    assert by_column["Training loss"][0] == [1, 2, 3, 4]


def test_precision_along_training_is_that_of_exact_steps():
    """Of two runs, three of four measured steps."""
    cosine, radius = "precision/upg_k5_d0.5/cosine", "precision/spectral_radius/F"
    run = partial(record, "figure2/toy_implicit", values=[0.5])
    exact = {"precision/exact/adjoint_residual": [0.5, 1e-6], cosine: [0.1, 0.8], radius: [9, 2]}
    other = {"precision/exact/adjoint_residual": [1e-3, 1e-6], cosine: [0.9, 1.0], radius: [1, 3]}
    other["precision/mine/cosine"] = [0.5, 0.7]  # of an estimator with a user's own name
    table = runs_table("figure2", [run("seed0", curves=exact), run("seed1", curves=other)])
    assert rows(table.sections[1]) == [
        {"Measured": "cosine of UPG A(5, 0.5)", "along Implicit": "0.900 (0.800 to 1.000)"},
        {"Measured": "cosine of mine", "along Implicit": "0.600 (0.500 to 0.700)"},
        {"Measured": "spectral radius of F", "along Implicit": "2.000 (1.000 to 3.000)"},
    ]
    assert [block.title for block in table.sections[1].blocks] == ["Toy"]


def test_reduced_runs_have_a_line_of_their_own(results):
    results.add("table9/toy_implicit", "seed0", [0.8, 0.8])
    short = {"protocol": "reduced", "changes": ["trainer.max_epochs=1"], "config_hash": "dddd"}
    results.add("table9/toy_implicit", "seed1", [0.2], **short)
    full, reduced, _ = results.rows("table9")
    assert (full["Best"], full["Paper"], full["n"]) == ("80.0", "84.1 ± 2.9", "1")
    assert (reduced["Best"], reduced["Paper"], reduced["n"]) == ("20.0", "—", "1")
    assert reduced["Method"] == "Implicit [reduced: trainer.max_epochs=1]"
    assert "must not be compared" in results.markdown("table9")


DATA = {"data": {"name": "Toy", "fingerprint": "sha256:bbbbbbbb33"}}


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
    ],
)
def test_other_data_and_configurations_are_never_in_one_cell(results, row, changes, methods):
    results.add("table9/toy_implicit", "seed0", [0.8])
    results.add(f"table9/toy_{row}", "seed1", [0.4], **changes)
    found = [(row["Method"], row["Best"]) for row in results.rows("table9")[:2]]
    assert found == [*zip(methods, ("80.0", "40.0"), strict=True)]


def test_runs_on_other_data_are_not_compared_with_the_paper(results):
    spelled = {"dataset": "TOY", "model": "IGNN", "method": "NPG"}
    results.add("table9/toy_npg", "seed0", [0.8], label=spelled)
    label = {"dataset": "toy-jpeg", "model": "IGNN", "method": "Implicit"}
    results.add("table9/toy_implicit", "seed0", [0.8], label=label)
    found = results.rows("table9")
    assert [(r["Data set"], r["Paper"], r["Best"]) for r in found] == [
        ("Toy", "84.1 ± 2.9", "—"),
        ("Toy", "83.9 ‡", "—"),
        ("Toy", "—", "80.0"),  # another spelling of the same data
        ("toy-jpeg", "—", "80.0"),
    ]


def test_rows_not_in_the_paper_come_below_those_that_are(results):
    label = {"dataset": "Toy", "model": "IGNN", "method": "BPTT"}
    results.add("table9/a_bptt", "seed0", [0.8], label=label)
    results.add("table9/toy_implicit", "seed0", [0.8])
    methods = [row["Method"] for row in results.rows("table9")]
    assert methods == ["Implicit", "UPG A(5, 0.5)", "BPTT"]


def test_a_run_without_a_finite_value_is_counted_not_hidden(results):
    results.add("table9/toy_implicit", "seed0", [0.8])
    lost = Result("accuracy", 0.6, 1, float("nan"))
    results.add("table9/toy_implicit", "seed1", [0.6, None], result=lost)
    row = results.rows("table9")[0]
    assert (row["Best"], row["Last"], row["n"]) == ("70.0 ± 14.1", "80.0 [1/2]", "2")
    assert "only m of the n runs" in results.markdown("table9")


def test_diverged_runs_are_counted_and_no_mean_hides_them(results):
    """A row with one of two, and a row with nothing else; figures name them, too."""
    lost = Result.missing("accuracy", "max")
    gone = {"result": lost, "curves": {}, "diverged": {"step": 8, "epoch": 1}}
    results.add("table9/toy_upg_k5_d0.5", "seed0", [0.8])
    results.add("table9/toy_upg_k5_d0.5", "seed1", [0.8], **gone)
    results.add("table9/toy_npg_k5_d0.5", "seed0", [0.8], **gone)
    table = results.table("table9")
    found = {row["Method"]: row["Best"] for row in results.rows("table9") if row["n"] != "—"}
    one, all_ = "UPG A(5, 0.5) [2 runs, 1 diverged]", "Implicit [1 run, 1 diverged]"
    assert found == {one: "80.0 [1/2]", all_: "—"}
    assert "so they flatter the row" in results.markdown("table9")
    drawn = {plot.name: plot for plot in plots_of(table)}
    assert {c.label for c in drawn["table9_curves"].curves} == {one}
    assert results.report() == 0


def test_evaluations_with_another_memory_are_noted(results):
    """The note has the mean over the runs at their best epochs."""
    values = {"seed0": [30.0, 26.0], "seed1": [29.0, 28.0]}
    for seed, curve in values.items():
        curves = {"test/perplexity": curve, "test/perplexity_at_480": [v - 1 for v in curve]}
        result = Result("perplexity", min(curve), 2, curve[-1], mode="min")
        results.add("table9/words", seed, curve, curves=curves, result=result)
    text = results.markdown("table9")
    assert "26.0 with a memory of 480 positions in evaluation (best epoch of each run)." in text


@pytest.mark.parametrize("key", known_tables(RESULTS, PUBLISHED))
def test_tables_of_this_repository_are_those_of_its_records(key):
    """``make report`` updates them after a change of records or of the report."""
    table = load(RESULTS, key, PUBLISHED)
    assert (RESULTS / "tables" / f"{key}.md").read_text(encoding="utf-8") == markdown.render(table)


@pytest.mark.parametrize("key", known_tables(RESULTS, PUBLISHED))
def test_figures_of_this_repository_are_those_of_its_records(key, monkeypatch):
    """The SVGs are. Numbers may differ in the last bits, on another processor; identifiers are
    their hashes."""
    monkeypatch.delitem(plot._FORMATS, "pdf")  # slow, and of the same drawing
    number, identifier = re.compile(r"-?\d+\.?\d*"), re.compile(r"\b[a-zA-Z][0-9a-f]{10}\b")
    for figure in plots_of(load(RESULTS, key, PUBLISHED)):
        file = RESULTS / "figures" / f"{figure.name}.svg"
        both = plot.render(figure)["svg"].decode(), file.read_text(encoding="utf-8")
        drawn, kept = (identifier.sub("", text) for text in both)
        assert number.sub("", drawn) == number.sub("", kept), f"{file}: python scripts/report.py"
        values = [np.array(number.findall(text), float) for text in (drawn, kept)]
        np.testing.assert_allclose(*values, rtol=0, atol=2e-3, err_msg=str(file))
