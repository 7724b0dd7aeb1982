"""Tables and figures of reasoners."""

from pathlib import Path

from phantomgrad_reasoners.report import scaling, settling
from phantomgrad_reasoners.report.board_figures import examples
from phantomgrad_reasoners.report.loop_figures import loops
from phantomgrad_reasoners.report.segment_figures import instruments
from phantomgrad_suite.report.extensions import extend

extend(
    catalogue=Path(__file__).with_name("catalogue.toml"),
    studies={"scaling": scaling.tables, "settling": settling.tables},
    figures={"looped": loops, "scaling": scaling.figures, "settling": settling.figures},
    of_all=[examples, instruments],
)
