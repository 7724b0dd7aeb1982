"""Claims: the file, the quantities, the table, and where it is shown."""

import re

import pytest
from graph_data import REPOSITORY
from report.conftest import PUBLISHED, Folder
from report.conftest import published as study
from report.conftest import rows as printed

from phantomgrad_suite.report.claims.claim import RunsClaim, SpeedClaim, read_claims
from phantomgrad_suite.report.claims.claims_table import judge, table_of_claims
from phantomgrad_suite.report.claims.quantities import QUANTITIES
from phantomgrad_suite.report.document import markdown
from phantomgrad_suite.runs.configs import choices
from phantomgrad_suite.runs.plan import expected

CLAIMS = """\
margin: 1.0
level: 0.05
families:
  toys:
    title: Toys
    source: the paper
    primary:
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


LINK = "[{}](records/cpu/table9)"


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


def section(folder, own=None):
    table = table_of_claims(judge(folder.path, folder.archive, own))
    assert table is not None
    return table.sections[1]


SECOND = """\
    secondary:
      - claim: UPG varies less
        place: Sec. 2
        paper: no numbers
        a: cpu/table9/upg
        b: cpu/table9/implicit
        quantity: last
        test: less
        seeds: 3
      - claim: It is ten times faster
        place: Sec. 3
        paper: 10 times
        untestable: no GPU
"""


def write(folder, text):
    (folder.path / "claims.yaml").write_text(text, encoding="utf-8")


def verdicts(folder):
    """Return the verdicts without their links."""
    return [re.sub(r"^\[|\]\(.*", "", row["Verdict"]) for row in printed(section(folder))]


def test_a_claim_cannot_be_tested_until_its_runs_are_there(claims):
    (row,) = printed(section(claims))
    assert (row["n"], row["Difference"]) == ("2 of 3", "+1.50")
    assert row["Verdict"] == LINK.format("cannot be tested here (5 of 6 runs)")
    claims.add("cpu/table9/implicit", "seed2-abcdef12", [0.9, 0.80])  # not the row's own settings
    assert printed(section(claims)) == [row]
    add(claims, "cpu/table9/implicit", 0.80, 0.80, 0.80)
    assert [*section(claims).frame.loc["Toys"]] == [
        *("UPG is better", "“it is better” (Sec. 1)", LINK.format("holds"), "84 against 83"),
        *("82.00 against 80.00", "+2.00", "-0.48 to +4.48", "3", "0.037", "0.32"),
    ]


def test_secondary_claims_are_apart_and_not_corrected(claims):
    add(claims, "cpu/table9/implicit", 0.80, 0.80, 0.80)
    write(claims, CLAIMS + SECOND)
    assert [*section(claims).frame.index.unique()] == ["Toys", "Toys, secondary"]
    assert verdicts(claims) == ["holds", "contradicted", "cannot be tested here (no GPU)"]
    both = CLAIMS + SECOND.replace("    secondary:\n", "")
    write(claims, both)  # p = 0.074 after the correction, which leaves out what no run can test
    assert verdicts(claims)[:2] == ["points towards", "points against"]
    assert [row["p"] for row in printed(section(claims))] == ["0.074", "0.963", "—"]


def test_what_is_contradicted_is_said_first_and_by_name(claims):
    add(claims, "cpu/table9/implicit", 0.80, 0.80, 0.80)
    first = table_of_claims(judge(claims.path, claims.archive)).sections[0].text
    assert first == "Of the paper's 1 primary claims, 1 holds. None is contradicted."
    write(claims, CLAIMS + SECOND)
    text = "Contradicted, of all claims here, under: Toys (1)."
    assert table_of_claims(judge(claims.path, claims.archive)).sections[0].text.endswith(text)
    assert claims.report() == 0
    page = (claims.path / "index.html").read_text()
    assert page.index(text) < page.index("<details>")
    assert page.count(text) == 1
    page = (claims.path / "claims.md").read_text()
    assert page.index(text) < page.index("| Claim")


def test_rows_no_better_than_the_baseline_test_nothing(claims):
    """The baselines are the published ones, for your runs too."""
    add(claims, "cpu/table9/implicit", 0.80, 0.80, 0.80)
    facts = {"name": "Toy", "fingerprint": "sha256:aaaaaaaa11"}
    numbers = {"data": facts, "metric": "accuracy", "scores": {"RBF-SVM": 0.81}}
    claims.write(study("baselines/cifar10_8x8", row="baselines/toy", numbers=numbers))
    reason = "table9/implicit is no better than the baseline: 80.00 against 81.00 %, RBF-SVM"
    text = f"cannot be tested here ({reason})"
    assert verdicts(claims) == [text]
    yours = Folder(claims.path / "yours")
    for row, values in {"upg": (0.81, 0.82, 0.83), "implicit": (0.80, 0.80, 0.80)}.items():
        add(yours, f"cpu/table9/{row}", *values)
    assert text in printed(section(claims, yours.archive))[0]["Verdict"]


def test_yours_are_judged_from_your_records(claims, tmp_path_factory, capsys):
    yours = Folder(tmp_path_factory.mktemp("yours"))
    add(yours, "cpu/table9/upg", 0.81, 0.82, 0.83)
    assert claims.report(f"yours={yours.path}") == 0
    text = (yours.path / "claims.md").read_text()
    assert "## Yours" not in text  # no pair yet
    add(yours, "cpu/table9/implicit", 0.80, 0.80, 0.80)
    assert claims.report(f"yours={yours.path}") == 0
    text = (yours.path / "claims.md").read_text()
    assert text.index("[cannot be") < text.index("## Yours") < text.index("[holds]")
    links = re.findall(r"\[(?:cannot.*?|holds)\]\((.*?)\)", text)
    places = [(yours.path / link).resolve() for link in links]
    assert places == [folder.path / "records/cpu/table9" for folder in (claims, yours)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "quantity: last",
            "quantity: lats",
            "toys cannot be used: quantity must be one of last, best",
        ),
        (
            "b: cpu/table9/implicit\n        quantity: last\n        test: greater",
            "quantity: last\n        test: fails_more",
            "test=fails_more needs b",
        ),
        (
            "a: cpu/table9/upg\n        b: cpu/table9/implicit\n        quantity: last\n"
            "        test: greater",
            "a: [x, y]\n        b: [x, y]\n        quantity: last\n        test: fails_more",
            "test=fails_more compares one row with one, got 2 as a",
        ),
        ("test: greater", "test: bigger", "cannot be used: test must be one of greater, less"),
        (
            "        a: cpu/table9/upg\n",
            "        a: [x, y]\n",
            "b must have as many rows as a (2), got 1",
        ),
        ("        a: cpu/table9/upg\n", "", "missing 1 required keyword-only argument: 'a'"),
        ("seeds: 3", "seeds: 3\n        seed: 3", "unexpected keyword argument 'seed'"),
        ("margin: 1.0", "margin: [", "is not YAML: while parsing"),
        ("margin: 1.0\n", "", "lacks margin"),
        (CLAIMS, "- margin", "must be a mapping, got ['margin']"),
    ],
)
def test_a_wrong_file_is_one_sentence(claims, capsys, old, new, message):
    write(claims, CLAIMS.replace(old, new))
    assert claims.report() == 1
    error = capsys.readouterr().err
    assert error.startswith(f"report: {claims.path / 'claims.yaml'}")
    assert message in error
    assert error.count("\n") == 1


def test_a_speed_is_that_of_a_step_or_of_its_backward_pass():
    with pytest.raises(ValueError, match="part must be one of step, backward, got 'whole'"):
        SpeedClaim(claim="c", place="p", paper="1", study="s", a="a", b="b", part="whole")


# Ours


def our_claims():
    margin, families = read_claims(REPOSITORY / "results" / "claims.yaml")
    assert margin == 1.0
    assert all(0 < family.level <= 0.05 for family in families)
    return [claim for family in families for claim in family.primary + family.secondary]


def test_the_rows_of_our_claims_are_experiments():
    rows = {row for claim in our_claims() if isinstance(claim, RunsClaim) for row in claim.rows}
    files = {row.removeprefix("cpu/") for row in rows if "figure3" not in row}
    assert files - {*choices("experiment")} == set()
    swept = {row for row, _ in expected("cpu/figure3")}
    assert {row for row in rows if row.startswith("cpu/figure3")} <= swept


def test_our_claims_keep_to_what_their_tests_compare():
    """Equality of what has no unit needs a margin of its own; failures are of two rows."""
    for claim in our_claims():
        if isinstance(claim, RunsClaim):
            assert claim.n > 1, claim
            if claim.test in ("equivalent", "not_worse"):
                assert QUANTITIES[claim.quantity].has_margin or claim.margin, claim
            if claim.test in ("fails_more", "varies_more"):
                assert (len(claim.a), len(claim.b), claim.folds) == (1, 1, 0), claim
            if claim.test == "fails_more":
                assert claim.quantity in ("last", "best", "diverged"), claim


def test_our_page_and_the_readme_have_the_verdicts_of_our_records():
    judgement = judge(REPOSITORY / "results", PUBLISHED)
    table = table_of_claims(judgement)
    assert table is not None
    text = (REPOSITORY / "results" / "claims.md").read_text(encoding="utf-8")
    assert text == markdown(table), "run python scripts/report.py"
    counted = judgement.sentence.partition(" claims, ")[2].rstrip(".")
    assert f": {counted}" in " ".join((REPOSITORY / "README.md").read_text().split())
