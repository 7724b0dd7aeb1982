"""The forest plot of the claims."""

import itertools
import math

import pandas as pd
from composition import REPOSITORY
from report.conftest import PUBLISHED

from phantomgrad_suite.report.claims.claim import Untestable
from phantomgrad_suite.report.claims.claims_table import judge
from phantomgrad_suite.report.claims.evidence import Effect, Evidence
from phantomgrad_suite.report.claims.inference import Verdict
from phantomgrad_suite.report.figures.forest import draw


def drawn(effect, verdict=Verdict.HOLDS):
    claim = Untestable(claim="It is better", place="", paper="", untestable="")
    evidence = Evidence(verdict, effect=effect)
    line = {"title": "Toys", "claim": claim, "evidence": evidence, "verdict": verdict}
    return draw(pd.DataFrame([line]), "T")


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_every_primary_claim_of_the_paper_is_a_line_with_its_verdict():
    judgement = judge(REPOSITORY / "results", PUBLISHED)
    pairs = list(itertools.pairwise(texts(draw(judgement.of_paper, "All"))))
    claims = [(line.claim.claim, line.verdict) for line in judgement.of_paper.itertuples()]
    assert len(claims) > 20
    assert [claim for claim in claims if claim not in pairs] == []


def test_a_difference_its_interval_and_that_of_the_paper_are_marked():
    (axes,) = drawn(Effect(1.0, -0.5, 2.5, 2.0, 1.0, "points")).axes
    assert texts(axes.figure) == ["Toys", "It is better", "holds"]
    at = [line.get_xdata() for line in axes.lines[1:]]
    assert [list(x) for x in at] == [[-0.5, 2.5], [1.0], [2.0]]
    assert axes.collections  # the margin


def test_an_interval_beyond_the_axis_ends_in_an_arrow_and_one_run_has_none():
    (axes,) = drawn(Effect(1.0, -20.0, 22.0, math.nan, 0.0, "points")).axes
    assert [line.get_marker() for line in axes.lines] == ["None", "None", "<", ">", "o"]
    (axes,) = drawn(Effect(1.0, math.nan, math.nan, math.nan, 0.0, "%"), Verdict.UNTESTED).axes
    assert [line.get_marker() for line in axes.lines] == ["None", "o"]
    (axes,) = drawn(None, Verdict.UNTESTED).axes
    assert len(axes.lines) == 1


def test_speeds_have_a_logarithmic_axis_around_one():
    (axes,) = drawn(Effect(1.4, 1.3, 1.5, 1.7, 0.0, "times")).axes
    assert axes.get_xscale() == "log"
    assert list(axes.lines[0].get_xdata()) == [1, 1]
