"""The numbers in the files of rows against the paper's tables, typed here from their source."""

import pandas as pd
import pytest
from report.conftest import PUBLISHED

from phantomgrad_suite.report.inputs import read_paper
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.metrics import METRICS

TABLE_1 = r"""
Implicit Differentiation   & $85.0 \pm 0.2$
w/o Pretraining            & $82.3 \pm 1.3$
w/o Dropout                & $83.7 \pm 0.1$
Adam $\rightarrow$ SGD     & $84.5 \pm 0.3$
SGD w/o Pretraining        & $82.9 \pm 1.5$
UPG ($\mA_{5,0.5}$, w/o Dropout) & $\mathbf{85.8} \pm 0.5$
NPG ($\mA_{5,0.5}$, w/o Dropout) & $85.6 \pm 0.5$
UPG ($\mA_{9,0.5}$, w/ Dropout)  & $\mathbf{86.1} \pm 0.5$
"""

TABLE_3 = r"""
CIFAR-10 & MDEQ & Implicit & 10M & $93.8 \pm 0.17$ & $1.0\times$
CIFAR-10 & MDEQ & UPG $\mA_{5,0.5}$ & 10M & $95.0 \pm 0.16$ & $1.4 \times$
ImageNet & MDEQ & Implicit & 18M & $75.3$ & $1.0\times$
ImageNet & MDEQ & UPG $\mA_{5,0.6}$ & 18M & $75.7$ & $1.7\times$
Wikitext-103 & DEQ (PostLN) & Implicit & 98M & $24.0$ & $1.0\times$
Wikitext-103 & DEQ (PostLN) & UPG $\mA_{5,0.8}$ & 98M & $25.7$ & $1.7 \times$
Wikitext-103 & DEQ (PreLN) & JR + Implicit & 98M & $24.5$ & $1.7 \times$
Wikitext-103 & DEQ (PreLN) & JR + UPG $\mA_{5,0.8}$ & 98M & $24.4$ & $2.2 \times$
Wikitext-103 & DEQ (PreLN) & JR + UPG $\mA_{5,0.8}$ & 98M & $24.0^\dagger$ & $1.7 \times$
"""

TABLE_4 = r"""
COX2  & IGNN & Implicit & 38K & $84.1\pm 2.9$
COX2  & IGNN & UPG $\mA_{5,0.5}$ & 38K & $83.9\pm 3.0$
COX2  & IGNN & UPG $\mA_{5,0.8}$ & 38K & $83.9\pm 2.7$
COX2  & IGNN & UPG $\mA_{5,1.0}$ & 38K & $83.0\pm 2.9$
PROTEINS & IGNN & Implicit & 34K & $78.6\pm 4.1$
PROTEINS & IGNN & UPG $\mA_{5,0.5}$ & 34K & $78.4\pm 4.2$
PROTEINS & IGNN & UPG $\mA_{5,0.8}$ & 34K & $78.6\pm 4.2$
PROTEINS & IGNN & UPG $\mA_{5,1.0}$ & 34K & $78.8\pm 4.2$
PPI & IGNN & Implicit & 4.7M & $97.6$
PPI & IGNN & UPG $\mA_{5,0.5}$ & 4.7M & $98.2$
PPI & IGNN & UPG $\mA_{5,0.8}$ & 4.7M & $97.4$
PPI & IGNN & UPG $\mA_{5,1.0}$ & 4.7M & $96.2$
"""


def printed(source):
    """Return the cells of LaTeX rows as plain text."""
    replacements = {
        r"$\mA_{5,": "A(5, ",
        r"$\mA_{9,": "A(9, ",
        "}$": ")",
        r"\mathbf{": "",
        r"$\rightarrow$": "→",
        r"^\dagger": "†",
        r"\times": "",
        r"\pm": "±",
    }
    for latex, plain in replacements.items():
        source = source.replace(latex, plain)
    rows = [line.split("&") for line in source.strip().splitlines()]
    return [[" ".join(c.replace("$", "").replace("}", "").split()) for c in row] for row in rows]


def spaced(text):
    return " ".join(text.replace("±", " ± ").split())


def test_table_1():
    numbers = [n for n in read_paper() if n.table == "table1"]
    assert [[n.method, n.text] for n in numbers] == printed(TABLE_1)
    assert {n.metric for n in numbers} == {"accuracy"}


def test_table_3():
    numbers = [n for n in read_paper() if n.table == "table3"]
    found = [
        [n.dataset, n.model, n.method, n.params, n.text + n.note[:1], n.speed] for n in numbers
    ]
    assert found == printed(TABLE_3)
    assert [n.metric for n in numbers] == ["accuracy"] * 4 + ["perplexity"] * 5


def test_table_4():
    numbers = [n for n in read_paper() if n.table == "table4"]
    found = [[n.dataset, n.model, n.method, n.params, n.text] for n in numbers]
    assert found == [[*row[:4], spaced(row[4])] for row in printed(TABLE_4)]
    assert [n.metric for n in numbers] == ["accuracy"] * 8 + ["micro_f1"] * 4
    assert all(n.note == "best of three runs" for n in numbers if n.dataset == "PPI")


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
def test_a_bad_entry_is_named(tmp_path, entry, message):
    (tmp_path / "experiment" / "t").mkdir(parents=True)
    path = tmp_path / "experiment" / "t" / "row.yaml"
    path.write_text(f"# A row.\npaper: {entry}\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_paper(tmp_path)


def test_every_metric_of_a_task_may_be_printed(tmp_path):
    (tmp_path / "experiment" / "t").mkdir(parents=True)
    for metric in METRICS:
        path = tmp_path / "experiment" / "t" / f"{metric}.yaml"
        path.write_text(f"paper: {{{ROW}, {metric}: 87.4}}\n", encoding="utf-8")
    found = {n.metric: n.value for n in read_paper(tmp_path) if n.table == "t"}
    assert found == dict.fromkeys(METRICS, "87.4")


def test_spreads_are_sample_standard_deviations():
    """As the authors' log shows: the best epochs of its runs are 95.06 ± 0.16."""
    best = (
        pd.read_csv(PUBLISHED.folder.parent / "published_curves.csv").groupby(["row", "run"]).max()
    )
    best = 100 * best.loc["table3/cifar10_upg", "test/accuracy"]
    assert best.round(2).tolist() == [94.89, 95.09, 95.21]
    (number,) = (n for n in read_paper() if n.row == "table3/cifar10_upg")
    assert f"{best.std(ddof=1):.2f}" == number.spread


def test_rows_that_build_on_a_row_do_not_inherit_its_number():
    assert not [
        n for n in read_paper() if n.row in ("table1/npg_k9_d0.5", "table1/swapped/implicit")
    ]
