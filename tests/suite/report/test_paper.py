"""The numbers in the files of rows against the paper's tables, typed here from their source."""

import pandas as pd
import pytest
from report.conftest import PUBLISHED

from phantomgrad_suite.report.inputs import read_paper
from phantomgrad_suite.runs.configs import CONFIG_PATH
from phantomgrad_suite.runs.errors import UserError

TABLE_1 = """
Implicit Differentiation & 85.0 ± 0.2
w/o Pretraining & 82.3 ± 1.3
w/o Dropout & 83.7 ± 0.1
Adam → SGD & 84.5 ± 0.3
SGD w/o Pretraining & 82.9 ± 1.5
UPG (A(5, 0.5), w/o Dropout) & 85.8 ± 0.5
NPG (A(5, 0.5), w/o Dropout) & 85.6 ± 0.5
UPG (A(9, 0.5), w/ Dropout) & 86.1 ± 0.5
"""

TABLE_3 = """
CIFAR-10 & MDEQ & Implicit & 10M & 93.8 ± 0.17 & 1.0
CIFAR-10 & MDEQ & UPG A(5, 0.5) & 10M & 95.0 ± 0.16 & 1.4
ImageNet & MDEQ & Implicit & 18M & 75.3 & 1.0
ImageNet & MDEQ & UPG A(5, 0.6) & 18M & 75.7 & 1.7
Wikitext-103 & DEQ (PostLN) & Implicit & 98M & 24.0 & 1.0
Wikitext-103 & DEQ (PostLN) & UPG A(5, 0.8) & 98M & 25.7 & 1.7
Wikitext-103 & DEQ (PreLN) & JR + Implicit & 98M & 24.5 & 1.7
Wikitext-103 & DEQ (PreLN) & JR + UPG A(5, 0.8) & 98M & 24.4 & 2.2
Wikitext-103 & DEQ (PreLN) & JR + UPG A(5, 0.8) & 98M & 24.0 & 1.7
"""

TABLE_4 = """
COX2 & IGNN & Implicit & 38K & 84.1 ± 2.9
COX2 & IGNN & UPG A(5, 0.5) & 38K & 83.9 ± 3.0
COX2 & IGNN & UPG A(5, 0.8) & 38K & 83.9 ± 2.7
COX2 & IGNN & UPG A(5, 1.0) & 38K & 83.0 ± 2.9
PROTEINS & IGNN & Implicit & 34K & 78.6 ± 4.1
PROTEINS & IGNN & UPG A(5, 0.5) & 34K & 78.4 ± 4.2
PROTEINS & IGNN & UPG A(5, 0.8) & 34K & 78.6 ± 4.2
PROTEINS & IGNN & UPG A(5, 1.0) & 34K & 78.8 ± 4.2
PPI & IGNN & Implicit & 4.7M & 97.6
PPI & IGNN & UPG A(5, 0.5) & 4.7M & 98.2
PPI & IGNN & UPG A(5, 0.8) & 4.7M & 97.4
PPI & IGNN & UPG A(5, 1.0) & 4.7M & 96.2
"""

METRICS = {"Wikitext-103": "perplexity", "PPI": "micro_f1"}
MORE_STEPS = "† additional steps in the forward equilibrium solver"
COLUMNS = ["dataset", "model", "method", "params", "text"]


@pytest.mark.parametrize(
    ("table", "columns", "printed", "notes"),
    [
        ("table1", ["method", "text"], TABLE_1, {}),
        ("table3", [*COLUMNS, "speed"], TABLE_3, {9: MORE_STEPS}),
        ("table4", COLUMNS, TABLE_4, dict.fromkeys(range(9, 13), "best of three runs")),
    ],
)
def test_numbers_of_rows_are_those_of_the_paper(table, columns, printed, notes):
    numbers = [n for n in read_paper() if n.table == table]
    rows = [" & ".join(filter(None, (getattr(n, name) for name in columns))) for n in numbers]
    assert rows == printed.strip().splitlines()
    assert all(n.metric == METRICS.get(n.dataset, "accuracy") for n in numbers)
    assert {n.line: n.note for n in numbers if n.note} == notes


ROW = "line: 1, dataset: D, model: M, method: X, params: 1K"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (f"{{{ROW}, accuracy: many}}", r"row\.yaml: `paper` cannot be used: .*'many'"),
        ("{accuracy: 1.0}", "cannot be used: 'line'"),
        ("{line: 1, dataset: D}", "cannot be used: it needs one of accuracy, .* got line, dataset"),
        ("{line: 1, accuracy: 1.0, colour: red}", "cannot be used: .*'colour'"),
        ("85.0", "cannot be used: "),
    ],
)
def test_a_bad_entry_is_named(tmp_path, monkeypatch, entry, message):
    monkeypatch.setenv(CONFIG_PATH, str(tmp_path))
    (tmp_path / "experiment" / "t").mkdir(parents=True)
    path = tmp_path / "experiment" / "t" / "row.yaml"
    path.write_text(f"# A row.\npaper: {entry}\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_paper()


def test_spreads_are_sample_standard_deviations():
    """As the authors' log shows: the best epochs of its runs are 95.06 ± 0.16."""
    best = (
        pd.read_csv(PUBLISHED.folder.parent / "published_curves.csv").groupby(["row", "run"]).max()
    )
    best = 100 * best.loc["table3/cifar10_upg", "test/accuracy"]
    assert best.round(2).tolist() == [94.89, 95.09, 95.21]
    (number,) = (n for n in read_paper() if n.row == "table3/cifar10_upg")
    assert f"{best.std(ddof=1):.2f}" == number.spread
