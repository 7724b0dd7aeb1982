"""Tables and figures of reasoners."""

import tomllib
from importlib.resources import files

from phantomgrad_reasoners.report import scaling, settling
from phantomgrad_reasoners.report.board_figures import examples
from phantomgrad_reasoners.report.loop_figures import loops
from phantomgrad_reasoners.report.quantities import QUANTITIES as OWN_QUANTITIES
from phantomgrad_reasoners.report.segment_figures import instruments
from phantomgrad_suite.report.catalogue import FIGURES, TABLES
from phantomgrad_suite.report.claims.quantities import QUANTITIES
from phantomgrad_suite.report.figures import MAKERS
from phantomgrad_suite.report.figures.run_figures import along_cost
from phantomgrad_suite.report.studies import STUDIES

_CONTENT = tomllib.loads((files(__package__) / "catalogue.toml").read_text(encoding="utf-8"))
TABLES.update(_CONTENT["tables"])
FIGURES.update(_CONTENT["figures"])
QUANTITIES.update(OWN_QUANTITIES)
STUDIES.update(scaling=scaling.tables, settling=settling.tables)
MAKERS.update(
    looped=[loops],
    reasoning=[along_cost, examples, instruments],
    scaling=[scaling.figures],
    settling=[settling.figures],
)
