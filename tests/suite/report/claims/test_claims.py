"""Claims: the file, the quantities, the table, and where it is shown."""

import re

import pytest
from graph_data import REPOSITORY
from report.conftest import Folder, texts
from report.conftest import rows as printed

from phantomgrad_suite.report.claims.claim import read_claims
from phantomgrad_suite.report.claims.claims_table import table_of_claims
from phantomgrad_suite.report.markdown import render
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.runs.records import Result

CLAIMS = """\
margin: 1.0
families:
  toys:
    title: Toys
    source: the paper
    claims:
      - claim: UPG is better
        words: it is better
        place: Sec. 1
        paper: 84 against 83
        a: cpu/table9/upg
        b: cpu/table9/implicit
        quantity: last
        test: greater
        seeds: 3
"""


def add(folder, row, *values):
    """Add a run of a row for each value of the last epoch."""
    for seed, value in enumerate(values):
        folder.add(row, f"seed{seed}", [0.9, value])


@pytest.fixture
def claims(results):
    (results.path / "claims.yaml").write_text(CLAIMS, encoding="utf-8")
    add(results, "cpu/table9/upg", 0.81, 0.82, 0.83)
    add(results, "cpu/table9/implicit", 0.80, 0.80)
    return results


def section(folder, records=None):
    table = table_of_claims(folder.path, records)
    assert table is not None
    return table.sections[0]


def test_a_family_is_open_until_its_runs_are_there(claims):
    (row,) = printed(section(claims))
    assert section(claims).blocks[0].title == "Toys (5 of 6 runs)"
    assert (row["Pairs"], row["Difference"], row["Verdict"]) == ("2 of 3", "+1.50", "open")
    claims.add("cpu/table9/implicit", "seed2-abcdef12", [0.9, 0.80])  # not the row's own settings
    assert printed(section(claims)) == [row]
    add(claims, "cpu/table9/implicit", 0.80, 0.80, 0.80)
    assert texts(section(claims)) == [
        [
            *("UPG is better", "“it is better” (Sec. 1)", "holds", "84 against 83"),
            *("82.00 against 80.00", "+2.00", "-0.48 to +4.48", "3", "0.037"),
        ]
    ]
    assert section(claims).blocks[0].title == "Toys"


def test_only_as_many_seeds_as_declared_are_judged(claims):
    add(claims, "cpu/table9/upg", 0.81, 0.82, 0.83, 0.10)
    add(claims, "cpu/table9/implicit", 0.80, 0.80, 0.80, 0.90)
    assert printed(section(claims))[0]["Difference"] == "+2.00"


def test_lists_of_rows_are_paired_by_place_and_folds_by_number(claims):
    text = CLAIMS.replace("cpu/table9/upg", "[t/a, t/b]").replace(
        "cpu/table9/implicit", "[t/c, t/d]"
    )
    text = text.replace("seeds: 3", "seeds: 1, folds: 2").replace("seeds: 1,", "seeds: 1\n       ")
    (claims.path / "claims.yaml").write_text(text, encoding="utf-8")
    for row, value in {"a": 0.80, "b": 0.50, "c": 0.79, "d": 0.48}.items():
        for fold in range(2):
            claims.add(f"t/{row}", f"seed42-fold{fold}", [0.9, value])
    (row,) = printed(section(claims))
    assert (row["Difference"], row["Pairs"]) == ("+1.50", "4")
    # s = 0.577, and the error s sqrt(1 / 4 + 1 / (2 - 1))
    reach = 3.182446 * (1 / 3) ** 0.5 * 1.25**0.5
    assert row["95 % interval"] == f"{1.5 - reach:+.2f} to {1.5 + reach:+.2f}"


def test_perplexities_are_compared_in_percent(claims):
    for row, value in {"upg": 110.0, "implicit": 100.0}.items():
        for seed in range(3):
            result = Result("perplexity", value, 1, value, mode="min")
            claims.add(f"cpu/table9/{row}", f"seed{seed}", [value], result=result)
    (row,) = printed(section(claims))
    assert (row["Ours"], row["Difference"]) == ("110.0 against 100.0", "+10.0 %")


def test_the_page_opens_with_the_claims(claims):
    (claims.path / "README.md").write_text("# Results\n")
    assert claims.report() == 0
    page = (claims.path / "index.html").read_text()
    assert page.index('id="claims"') < page.index('id="overview"')
    assert '<a href="records/cpu/table9">open</a>' in page
    assert "UPG is better<small> · “it is better” (Sec. 1)</small>" in page
    assert "the paper: 1 open." in page
    assert "[open](records/cpu/table9)" in (claims.path / "claims.md").read_text()


def test_yours_are_judged_from_your_records(claims, tmp_path_factory, capsys):
    yours = Folder(tmp_path_factory.mktemp("yours"))
    add(yours, "cpu/table9/upg", 0.81, 0.82, 0.83)
    assert claims.report(f"yours={yours.path}") == 0
    text = (yours.path / "claims.md").read_text()
    assert "## Yours" not in text  # no pair yet
    add(yours, "cpu/table9/implicit", 0.80, 0.80, 0.80)
    assert claims.report(f"yours={yours.path}") == 0
    text = (yours.path / "claims.md").read_text()
    assert text.index("[open]") < text.index("## Yours") < text.index("[holds]")
    links = re.findall(r"\[(?:open|holds)\]\((.*?)\)", text)
    places = [(yours.path / link).resolve() for link in links]
    assert places == [folder.path / "records/cpu/table9" for folder in (claims, yours)]


def test_a_claim_is_not_settled_by_survivors(claims):
    add(claims, "cpu/table9/implicit", 0.60, 0.61, 0.62)
    assert texts(section(claims))[0][2] == "holds"
    lost = {"result": Result.missing("accuracy", "max"), "curves": {}, "diverged": {"step": 8}}
    claims.add("cpu/table9/implicit", "seed1", [0.9], **lost)
    row = texts(section(claims))[0]
    assert row[2] == "not settled (a run diverged in 1 of 3 pairs)"
    assert row[4:] == ["— against —", "3"]


def test_without_the_file_there_are_no_claims(results):
    assert table_of_claims(results.path) is None
    assert results.report() == 0
    assert not (results.path / "claims.md").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "quantity: last",
            "quantity: lats",
            "a claim of toys cannot be used: quantity must be one of",
        ),
        ("test: greater", "test: bigger", "a claim of toys cannot be used: test must be"),
        ("test: greater", "test: not_worse\n        quantity: cosine_min", "has no margin"),
        ("seeds: 3", "seeds: 1", "at least 2 pairs of runs"),
        ("seeds: 3", "sedes: 3", "unexpected keyword argument 'sedes'"),
        ("        a: cpu/table9/upg\n", "", "missing 1 required keyword-only argument: 'a'"),
        ("cpu/table9/upg", "[t/a, t/b]", "the same number of rows, got 2 and 1"),
        ("    title: Toys\n", "", "a claim of toys cannot be used: 'title'"),
        ("    source: the paper\n", "", "a claim of toys cannot be used: 'source'"),
        ("margin: 1.0", "margin: some", "margin must be a number, got 'some'"),
        ("margin: 1.0", "margin: [", "is not YAML: while parsing"),
        ("families:", "family:", "families must be a mapping, got None"),
        (CLAIMS, "", "families must be a mapping, got None"),
        (CLAIMS, "- margin", "must be a mapping, got ['margin']"),
        (CLAIMS, "families: [toys]", "families must be a mapping, got ['toys']"),
    ],
)
def test_a_wrong_file_is_one_sentence(claims, capsys, old, new, message):
    text = CLAIMS.replace("        quantity: last\n", "") if "quantity: c" in new else CLAIMS
    (claims.path / "claims.yaml").write_text(text.replace(old, new), encoding="utf-8")
    assert claims.report() == 1
    error = capsys.readouterr().err
    assert error.startswith(f"report: {claims.path / 'claims.yaml'}")
    assert message in error
    assert error.count("\n") == 1


def test_a_record_without_the_quantity_is_named(claims):
    (claims.path / "claims.yaml").write_text(CLAIMS.replace("last", "at_equal_time"))
    with pytest.raises(UserError, match=r"cpu/table9/upg/seed0 lacks what at_equal_time needs"):
        table_of_claims(claims.path)


def test_the_authors_log_gives_the_printed_number(claims):
    for name in ("paper.csv", "published_curves.csv"):
        (claims.path / name).write_bytes((REPOSITORY / "results" / name).read_bytes())
    table = table_of_claims(claims.path)
    assert table is not None
    assert table.missing == "the paper: 1 open"  # the log is no claim
    row = texts(table.sections[0])[-1]
    assert row[0] == "MDEQ, UPG A(5, 0.5), best epochs: 94.89, 95.09, 95.21"
    assert row[2:5] == ["holds", "95.0 ± 0.16", "95.06 ± 0.16"]
    wrong = (claims.path / "paper.csv").read_text().replace("95.0,0.16", "95.0,0.13")  # with ddof 0
    (claims.path / "paper.csv").write_text(wrong)
    assert texts(section(claims))[-1][2] == "does not hold"


def test_the_rows_of_our_claims_are_experiments():
    margin, families = read_claims(REPOSITORY / "results" / "claims.yaml")
    rows = {row for family in families for claim in family.claims for row in claim.rows}
    files = {row.removeprefix("cpu/") for row in rows if "figure3" not in row}
    missing = [f for f in files if not (REPOSITORY / f"configs/experiment/{f}.yaml").is_file()]
    assert (margin, missing) == (1.0, [])


def test_our_page_of_claims_is_that_of_our_records():
    table = table_of_claims(REPOSITORY / "results")
    assert table is not None
    text = (REPOSITORY / "results" / "claims.md").read_text(encoding="utf-8")
    assert text == render(table), "run python scripts/report.py"
