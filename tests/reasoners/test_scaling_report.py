"""The tables and figures of test-time scaling, from the records in this repository, changed."""

from dataclasses import replace

import pandas as pd
import pytest
from report.conftest import plots, points, published, rows, study_table

from phantomgrad_suite.report.document import DASH
from phantomgrad_suite.runs.errors import UserError


def measured(seed, **changes):
    """Return the record of a run, with changes of its numbers."""
    record = published(f"scaling/reasoning/sudoku6/seed{seed}")
    return replace(record, numbers={**record.numbers, **changes})


def test_runs_that_differ_have_tables_of_their_own():
    """Another row, another configuration of it, or another setting of the study."""
    other = replace(measured(0), instance="seed0-ffff5678", changes=["setting.starts=4"])
    other.setting["starts"] = 4
    records = [measured(0), measured(0, row="reasoning/minimal_j7")]
    records += [measured(0, instance="seed0-abcd1234"), other]
    table = study_table("scaling", *records)
    titles = [section.title for section in table.sections if "depth" in section.title]
    assert len(titles) == 4
    assert sum("[abcd1234]" in title for title in titles) == 1
    assert sum("[setting.starts=4]" in title for title in titles) == 1
    assert len(plots(table)) == 4


def test_an_area_that_is_not_known_is_a_dash():
    record = measured(0)
    record.numbers["errors"][1]["auroc"] = None
    _, _, errors, *_ = study_table("scaling", record).sections
    assert rows(errors)[0]["AUROC, state"] == DASH


def test_the_figure_has_all_rules():
    """Means over the runs, and a band of one standard error."""
    records = [measured(seed) for seed in (0, 1)]
    ((name, figure),) = plots(study_table("scaling", *records)).items()
    assert name == "scaling_reasoning_sudoku6"
    curves, row = points(figure), "known grids\nexact accuracy (%)"

    def known(part):
        found = pd.concat(pd.DataFrame(record.numbers[part]) for record in records)
        return found[found["set"] == "test/known_grids"]

    depth = 100 * known("depth").groupby("segments")["accuracy"].agg(["mean", "sem"])
    assert curves[row, "segments", "the model's own start"] == (
        [*range(1, 17)],
        pytest.approx(depth["mean"].tolist()),
    )
    drawn = figure.points[(figure.points["row"] == row) & (figure.points["column"] == "segments")]
    assert (drawn["high"] - drawn["y"]).tolist() == pytest.approx(depth["sem"].tolist())
    deep = known("breadth").query("segments == 16")
    breadth = 100 * deep.groupby(["rule", "starts"])["accuracy"].mean()
    for rule, label in {"any": "any right", "vote": "majority"}.items():
        expected = [1, 2, 4, 8], pytest.approx(breadth[rule].tolist())
        assert curves[row, "starts, 16 segments", label] == expected


@pytest.mark.parametrize("layout", [{"sets": [{"name": "test"}]}, {"sets": [0.5]}])
def test_a_record_of_an_earlier_layout_is_named(layout):
    with pytest.raises(UserError, match="seed0 was measured by an earlier version: run it again"):
        study_table("scaling", measured(0, **layout))
