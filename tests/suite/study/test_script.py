"""The script of the studies: one study, several, and a line for each mistake."""

import re

import pytest
import torch
from graph_data import REPOSITORY
from study.tiny import STUDY, TINY

from phantomgrad_suite.runs.configs import choices, listed
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.study import find_device


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("study=figure1/tnah",), "there is no study 'figure1/tnah'; the nearest are figure1/tanh"),
        (
            ("study=figure4/*", "study=table2/cpu"),
            "study=figure4/* study=table2/cpu: a command takes ",
        ),
        (("study=figure5/*",), "there is no file configs/study/figure5/*.yaml"),
        ((STUDY, "setting.sample=3"), "there is no setting 'setting.sample'; the nearest are sett"),
        (
            ("study=figure4/*", "seeds=3"),
            "figure4/linear: there is no setting 'seeds'; the nearest",
        ),
    ],
)
def test_script_names_a_bad_argument_in_one_line(study_script, arguments, message):
    outcome = study_script(*arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(message)
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("setting.samples=0", "setting cannot be built: .*samples must be at least 1, got 0"),
        ("setting.steps=3", r"setting\.steps must be Sequence\[int\], got 3"),
        ("label=5", "label must be a mapping, got 5"),
        ("threads=0", "threads must be a positive integer or null, got 0"),
        ("device=cuda", "device=cuda, but torch sees 0 CUDA devices"),
        ("device=tpu", "device must be cpu or cuda, got 'tpu'"),
    ],
)
def test_script_names_a_bad_value_in_one_line(
    study_script, workplace, monkeypatch, override, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    outcome = study_script(*TINY, override)
    assert (outcome.code, outcome.err) == (1, "")
    assert re.match(message, outcome.out)
    assert outcome.out.count("\n") == 1
    assert [path.name for path in workplace.path.glob("**/*.json")] in ([], ["attempt.json"])


@pytest.fixture
def launched(monkeypatch):
    """Rows and seeds of the studies that the script would start; Figure 4 with tanh fails."""
    found = []

    def run_study(config):
        found.append((config.label.row, config.seed))
        if config.label.row == "figure4/tanh":
            raise UserError("no luck")

    monkeypatch.setattr("phantomgrad_suite.start.run_study", run_study)
    return found


@pytest.mark.parametrize(
    ("patterns", "rows"),
    [
        ("figure4/*,!figure4/linear,table2/cpu", ["figure4/relu", "figure4/tanh", "table2/cpu"]),
        ("theorems/s*", ["theorems/series", "theorems/sgd"]),
    ],
)
def test_a_pattern_starts_its_studies_and_goes_on_after_a_failure(
    study_script, launched, patterns, rows
):
    """In order; the exit status is 1 if one failed."""
    outcome = study_script(f"study={patterns}", "seed=5")
    assert launched == [(row, 5) for row in rows]
    assert outcome.code == ("figure4/tanh" in rows)
    assert outcome.out.count("no luck") == ("figure4/tanh" in rows)


def test_the_makefile_names_studies_that_exist():
    """And runs that studies look at, of rows that exist."""
    makefile = (REPOSITORY / "Makefile").read_text()
    patterns = re.findall(r"(?: study='?|STUDIES = |ON_CPU := )([\w/*!,]+)", makefile)
    assert len(patterns) >= 5
    known = [*choices("study"), "torchdeq"]  # a bench, with a folder of its own
    assert {name for each in patterns for name in listed("study", each)} <= {*known}
    looked_at = re.findall(r"\b(scaling|settling)/(\w+)", makefile)
    assert {kind for kind, _ in looked_at} == {"scaling", "settling"} <= {*known}
    assert {f"reasoning/{row}" for _, row in looked_at} <= {*choices("experiment")}


def test_device_is_one_that_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert find_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(UserError, match=r"device=cuda:1, but torch sees 1 CUDA device$"):
        find_device("cuda:1")
