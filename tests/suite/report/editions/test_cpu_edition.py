"""The CPU edition: a block of its own in the paper's tables, and figures of its own."""

from dataclasses import replace

import pytest
from graph_data import REPOSITORY
from report.conftest import Folder, plots, record, runs_table

from phantomgrad_suite.released import publish
from phantomgrad_suite.report.catalogue import entry_of
from phantomgrad_suite.report.command import known_tables
from phantomgrad_suite.report.experiments.evaluations import evaluations
from phantomgrad_suite.report.experiments.results import table_of_runs
from phantomgrad_suite.report.latex import render
from phantomgrad_suite.report.table import State
from phantomgrad_suite.runs.identity import SCALES, split_row

REDUCED, DATA = "half of everything, 2 epochs (50)", "8 x 8 pixels"


def small(row, instance, values, **changes):
    """Return the changes of a record in the CPU edition."""
    label = {"dataset": "Small", "model": "IGNN", "method": "its label"}
    facts = {
        "label": label,
        "protocol": "reduced",
        "changes": [REDUCED, DATA],
        "config": {"label": {**label, "scale": "cpu", "reduced": [REDUCED]}},
        "data": {"name": "small", "fingerprint": "sha256:dddddddd", "reduced": DATA},
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


def test_the_scales_are_those_of_the_configurations():
    files = (REPOSITORY / "configs" / "scale").glob("*.yaml")
    assert {*SCALES} == {path.stem for path in files}
    assert split_row("cpu/table1/implicit") == ("cpu", "table1/implicit")
    assert split_row("table4/honest/cox2_implicit") == ("", "table4/honest/cox2_implicit")


def test_it_is_a_block_under_the_papers_and_never_next_to_its_numbers(both):
    headings = ("Data set", "Method", "Paper", "n")
    found = both.rows("table9")
    assert [row["Best"].split(" ±")[0] for row in found] == ["80.0", "—", "55.0", "70.0"]
    assert [[row[heading] for heading in headings] for row in found] == [
        ["Toy", "Implicit", "84.1 ± 2.9", "1"],
        ["Toy", "UPG A(5, 0.5)", "83.9 ‡", "—"],
        ["Small", "Implicit", "—", "2"],  # the paper's method
        ["Small", "UPG A(5, 0.5)", "—", "1"],
    ]
    table = both.table("table9")
    for section in table.sections:
        assert [block.title for block in section.blocks] == ["As in the paper", "CPU edition"]
    note = f"CPU edition, Small: {REDUCED}, {DATA}. Not to be compared with the paper's numbers."
    assert both.markdown("table9").count(note) == 1
    assert both.markdown("table9").count(REDUCED) == 1
    assert r"\caption{Table9: CPU edition}" in render(table)


def test_data_sets_have_printed_names_and_figures_their_own():
    """What the data state as well as the label is printed once."""
    content = small("cpu/table4/ppi_implicit", "seed0", [0.5])
    twice = "synthetic, 0.02 of PPI's nodes"
    content["label"] = {"dataset": "ppi-synthetic"}
    content["data"] |= {"reduced": twice}
    curves = {"precision/step": [0, 9], "precision/spectral_radius/F": [0.5, 0.6]}
    table = runs_table(
        "table4", [record(**{**content, "changes": [REDUCED, twice], "curves": curves})]
    )
    assert (
        table.sections[0].notes[0].startswith(f"CPU edition, PPI-like random graphs: {REDUCED}. ")
    )
    assert "table4_cpu_ppi-synthetic_radius" in plots(table)


def test_a_changed_run_of_it_has_a_line_of_its_own(both):
    changes = [REDUCED, DATA, "trainer.max_epochs=1"]
    row = "cpu/table9/toy_implicit"
    both.add(**small(row, "seed0-eeee", [0.1], changes=changes, config_hash="eeee"))
    method = "Implicit [reduced: trainer.max_epochs=1]"
    assert [r["Best"] for r in both.rows("table9") if r["Method"] == method] == ["10.0"]
    assert both.markdown("table9").count(REDUCED) == 1


def test_it_is_no_table_and_its_tables_are_known(results, capsys):
    results.add(**small("cpu/other/row", "seed0", [0.5]))
    assert known_tables(results.path, results.archive) == ["other", "table9"]
    assert results.report("cpu") == 2
    assert results.report("other") == 0
    assert "**CPU edition**" in capsys.readouterr().out


def test_the_state_tells_what_exists_in_it_only(both):
    table = both.table("table9")
    text = "1 of 2 rows in full, 1 in the CPU edition"
    command = table.entry.command
    assert table.commands == [command, f"{command} SCALE=cpu"]
    assert (table.state, table.missing) == (State.PARTLY, text)
    both.archive.file("table9/toy_implicit").unlink()
    table = both.table("table9")
    assert (table.state, table.missing) == (State.SCALED, "2 of 2 rows")
    assert table.commands == [f"{command} SCALE=cpu"]


def test_another_data_set_than_the_papers_does_not_hide_it():
    """Figure 2 counts as made on CIFAR-10 only."""
    content = small("cpu/figure2/cifar10_implicit", "seed0", [0.5])
    scaled, ours = record(**content), record("figure2/cox2_implicit", "seed0", [0.5])
    assert runs_table("figure2", [ours]).state == State.PARTLY
    assert runs_table("figure2", [ours, scaled]).state == State.SCALED


def test_yours_are_compared_with_the_published_ones(both, tmp_path_factory, capsys):
    yours = Folder(tmp_path_factory.mktemp("yours"))
    yours.add(**small("cpu/table9/toy_implicit", "seed0", [0.53]))
    assert both.report("table9", f"yours={yours.path}") == 0
    assert "2 of 2 numbers agree" in capsys.readouterr().out
    published = "published: cpu/table9/toy_implicit seed0"
    assert publish(yours.path, both.path) == [published]
    unpublished = Folder(tmp_path_factory.mktemp("unpublished"))
    unpublished.add(**small("cpu/new/row", "seed0", [0.53]))
    both.report("new", f"yours={unpublished.path}")
    assert REDUCED in capsys.readouterr().out


def test_the_scales_have_figures_of_their_own(both):
    found = plots(both.table("table9"))
    assert list(found) == ["table9", "table9_cpu", "table9_curves", "table9_cpu_curves"]
    assert [*found["table9_cpu"].places] == [("Small: accuracy (%) ↑", "CPU edition")]
    whiskers = [curve.band is not None for curve in found["table9_cpu"].curves]
    assert whiskers == [True, False]  # two runs, and one


def test_precision_along_its_training_is_drawn_before_that_of_small_models():
    curves = {
        "test/accuracy": [0.5],
        "precision/step": [0, 100],
        "precision/upg_k1_d1.0/cosine": [None, 0.7],
        "precision/spectral_radius/F": [0.5, 0.6],
    }
    scaled = record(**small("cpu/figure2/cifar10_implicit", "seed0", [0.5], curves=curves))
    other = record("figure2/toy_implicit", "seed0", [0.5], curves=curves)
    assert list(plots(runs_table("figure2", [other, scaled]))) == [
        *("figure2_cpu_small_cosines", "figure2_cpu_small_radius"),
        *("figure2_toy_cosines", "figure2_toy_radius"),
    ]


def test_data_sets_without_runs_of_ours_are_not_drawn(results):
    line = "table9/other_implicit,table9,Other,IGNN,Implicit,1K,accuracy,50.0,,%,\n"
    results.print_in_paper(line)
    assert plots(results.table("table9")) == {}
    results.add("table9/toy_implicit", "seed0", [0.8])
    plot = plots(results.table("table9"))["table9"]
    assert list(plot.places) == [("Toy: accuracy (%) ↑", "")]
    whiskers = [(curve.label, curve.band is not None) for curve in plot.curves]
    assert whiskers == [("paper", True), ("paper", False), ("last epoch", False)]


# The test metric by cost


def trained(row, instance, gradient, **changes):
    """Return a run of two epochs, of ten steps each."""
    content = small(f"cpu/table4/{row}", instance, [0.5, 0.7])
    parts = {"task": {}, "model": {}, "solver": {"_target_": "phantomgrad.FixedPoint"}}
    content["config"] |= {"gradient": gradient, **parts}
    content |= {"weights": {"last": {"epoch": 2, "step": 20}}, "config_hash": row}
    made = record(**content)
    cost = {"seconds/step_cpu": [3.0, 5.0], "seconds/f_cpu": [0.1, 0.3]}
    return replace(made, curves={**made.curves, **cost, "solver/evaluations": [8, 6], **changes})


UPG = {"_target_": "phantomgrad.UnrolledPhantomGradient", "steps": 5, "damping": 0.5}
NPG = {"_target_": "phantomgrad.NeumannPhantomGradient", "steps": 5, "damping": 0.5}
IMPLICIT = {"_target_": "phantomgrad.ImplicitGradient"}
BPTT = {"_target_": "phantomgrad.BackpropThroughSolver"}


def test_evaluations_are_those_of_solves_gradients_and_pretraining():
    assert evaluations(trained("a", "seed0", UPG)).tolist() == [180, 340]  # 8 + 5 + 5, 6 + 10
    assert evaluations(trained("a", "seed0", NPG)).tolist() == [140, 260]  # 8 + 1 + 5
    adjoint = {"adjoint/evaluations": [7, 7]}
    exact = trained("a", "seed0", IMPLICIT, **adjoint)
    assert evaluations(exact).tolist() == [170, 320]  # 8 + 7 + 1 + 1
    exact.config["task"] |= {"pretraining_steps": 12, "pretraining_layers": 3}
    exact.curves["solver/evaluations"] = exact.curves["adjoint/evaluations"] = [None, 6]
    assert evaluations(exact).tolist() == [60, 60 + 2 * 6 + 8 * 14]
    exact.config["task"] = {"jacobian": {"frequency": 0.5}}
    assert evaluations(exact)[1] - evaluations(exact)[0] == 10 * (14 + 2)


def test_evaluations_of_recorded_solves_and_of_recorded_parts_of_a_recursion():
    through = trained("a", "seed0", BPTT)
    assert evaluations(through).tolist() == [160, 280]  # 8 + 8, 6 + 6
    through.config["solver"]["_target_"] = "phantomgrad.Reversible"
    assert evaluations(through).tolist() == [240, 420]
    recursion = trained("a", "seed0", UPG | {"steps": 1})
    recursion.config["model"] = {"n": 4, "recorded": 2}
    assert evaluations(recursion).tolist() == [94, 168]  # 8 + 1 + 2 / 5
    recursion.config["model"] = {"n": None, "recorded": None}
    assert evaluations(recursion).tolist() == [100, 180]


def test_the_metric_is_drawn_by_time_and_by_evaluations():
    """There is a line for each row that the catalogue names; its runs are averaged.

    The unit of time is an evaluation of f of the same run, since machines differ.
    """
    runs = [trained("ppi_upg_k5_d0.5", f"seed{i}", UPG) for i in range(2)]
    runs[1].curves["seconds/step_cpu"] = [5.0, 5.0]
    runs += [trained("ppi_implicit", "seed0", IMPLICIT), trained("ppi_other", "seed0", IMPLICIT)]
    runs += [trained("swapped/ppi_implicit", "seed0", IMPLICIT)]
    name, key = "table4_cpu_small_cost", entry_of("table4")
    found = plots(table_of_runs(key, [], runs))
    assert [figure for figure in found if "cost" in figure] == [name]
    plot = found[name]
    assert len(plot.curves) == 4
    upg = {curve.column: curve for curve in plot.curves[2:]}
    time = "processor time in thousand evaluations of f"
    assert upg["thousand evaluations of f"].x.tolist() == pytest.approx([0.18, 0.34])
    assert upg[time].x.tolist() == pytest.approx([4 / 200, 9 / 200])
    assert list(upg[time].y) == pytest.approx([50, 70])


def test_epochs_without_a_test_value_have_a_cost_and_no_point():
    runs = [trained("ppi_implicit", "seed0", IMPLICIT)]
    runs[0].curves["test/accuracy"] = [None, 0.7]
    plot = plots(table_of_runs(entry_of("table4"), [], runs))["table4_cpu_small_cost"]
    assert [list(curve.x) for curve in plot.curves] == [
        pytest.approx([8 / 200]),
        pytest.approx([0.18]),
    ]


@pytest.mark.parametrize(("part", "name"), [("weights", "last"), ("curves", "seconds/f_cpu")])
def test_rows_whose_cost_is_not_known_are_not_drawn_by_it(part, name):
    """A run may keep no weights, which count its steps; on a GPU it has no processor time of f."""
    known, other = (trained(f"ppi_{r}", "seed0", IMPLICIT) for r in ("implicit", "upg_k5_d0.5"))
    other.curves["test/accuracy"] = [0.1, 0.2]
    del getattr(other, part)[name]
    again = replace(other, instance="seed1")
    drawn = []
    for runs in ([known, other], [other, again]):
        found = plots(table_of_runs(entry_of("table4"), [], runs)).get("table4_cpu_small_cost")
        drawn.append([list(curve.y) for curve in found.curves] if found else None)
    assert drawn == [[[50, 70], [50, 70]], None]
