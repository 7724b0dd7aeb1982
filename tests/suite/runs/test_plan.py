"""The runs that table files list."""

import pytest
from training import composed

from phantomgrad_suite.jobs.compose import identity_of
from phantomgrad_suite.runs.configs import listed, sweep_of
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.identity import split_row
from phantomgrad_suite.runs.plan import expected


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    "table", ["table4", "cpu/table1", "figure3_cox2", "cpu/figure3", "reasoning", "table3_imagenet"]
)
def test_expected_runs_are_those_that_hydra_launches(table):
    """The first and the last run of the sweep are checked."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.override_parser.overrides_parser import OverridesParser

    scale, name = split_row(table)
    chosen = [f"table={name}", *([f"scale={scale}"] if scale else [])]
    composed(chosen)
    sweeper = HydraConfig.get().sweeper
    params = sweep_of(sweeper.params, sweeper.scales or {}, scale)
    sweep = OverridesParser.create().parse_overrides([f"{k}={v}" for k, v in params.items()])
    (launched,) = BasicSweeper.split_arguments(sweep, max_batch_size=None)
    runs = expected(table)
    assert len(launched) == len(runs)
    for place in (0, -1):
        identity = identity_of(composed([*chosen, *launched[place]]))
        assert (identity.row, identity.instance) == runs[place]


def test_patterns_that_name_nothing_are_refused():
    assert listed("experiment", "chains/*, !chains/npg*, digits/mine") == [
        *("chains/implicit", "chains/upg_k5_d0.5", "digits/mine")
    ]
    with pytest.raises(UserError, match=r"there is no file configs/experiment/chain/\*\.yaml"):
        listed("experiment", "chain/*")
    with pytest.raises(UserError, match="!chains/ngp leaves out nothing"):
        listed("experiment", "chains/*, !chains/ngp")
    with pytest.raises(UserError, match=r"!chains/\* leaves out all"):
        listed("experiment", "chains/upg_k5_d0.5, !chains/*")
