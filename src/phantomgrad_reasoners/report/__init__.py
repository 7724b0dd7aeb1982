"""Tables and figures of reasoners."""

from pathlib import Path

from phantomgrad_reasoners.report.board_figures import examples
from phantomgrad_reasoners.report.loop_figures import loops
from phantomgrad_reasoners.report.scaling_figures import scaling as scaling_figures
from phantomgrad_reasoners.report.scaling_tables import scaling as scaling_tables
from phantomgrad_reasoners.report.segment_figures import instruments
from phantomgrad_reasoners.report.settling import figures as settling_figures
from phantomgrad_reasoners.report.settling import tables as settling_tables
from phantomgrad_suite.report.extensions import extend

extend(
    catalogue=Path(__file__).with_name("catalogue.toml"),
    studies={"scaling": scaling_tables, "settling": settling_tables},
    figures={"looped": loops, "scaling": scaling_figures, "settling": settling_figures},
    of_all=[examples, instruments],
)
