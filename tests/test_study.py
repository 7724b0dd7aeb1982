"""Studies from composition to record: every file, the suites, and what is said when it fails."""

from __future__ import annotations

import logging
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from graph_data import REPOSITORY
from phantomgrad.cli import check_overrides, names
from phantomgrad.errors import UserError
from phantomgrad.jobs import as_dict
from phantomgrad.records import Check, read_study
from phantomgrad.runs import hash_config
from phantomgrad.studies import Findings, Study
from phantomgrad.studies.base import Track, silently
from training import Script, Workplace, composed

CONFIGS = REPOSITORY / "configs"
STUDIES = names("study")
SUITES = names("suite")
# A whole study in the time of a test.
STUDY = "study=figure1/tanh"
SETTING = ("size: 16", "rows: 2", "samples: 7", "batch: 4", "steps: [1, 2]")
TINY = (STUDY, *(f"setting.{line.replace(': ', '=').replace(' ', '')}" for line in SETTING))


def rows_of(suite: str) -> list[str]:
    content = yaml.safe_load((CONFIGS / "suite" / f"{suite}.yaml").read_text())
    return [row.strip() for row in content["hydra"]["sweeper"]["params"]["study"].split(",")]


# --- The files -------------------------------------------------------------------------------


@pytest.mark.parametrize("study", STUDIES)
def test_study_says_what_it_is_and_how_to_run_it(study: str) -> None:
    """Package line, what it reproduces, its own command, and where its numbers are."""
    package, title, command, price, *_ = (
        (CONFIGS / "study" / f"{study}.yaml").read_text().splitlines()
    )
    assert package == "# @package _global_"
    assert re.match(r"# (Figure|Table|Theorem) \d", title)
    assert command == f"#   python scripts/study.py study={study}"
    artifact = study.split("/")[0]
    assert re.fullmatch(
        rf"# (About \d+ s on one CPU core|Not timed yet)\. Ours: results/tables/{artifact}\.md\.",
        price,
    )


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("study", STUDIES)
def test_study_composes_and_is_built(study: str) -> None:
    """Of its own settings alone, every one of which the record shows."""
    from hydra.utils import instantiate

    config = as_dict(composed([f"study={study}"], root="study"))
    built = instantiate(config["setting"])
    assert isinstance(built, Study)
    shown = {k for k in config["setting"] if not k.startswith("_")}
    assert shown == set(built.__dataclass_fields__)
    assert config["seed"] == 0


@pytest.mark.usefixtures("workplace")
def test_no_two_studies_are_the_same() -> None:
    """But for the device, which is a circumstance."""
    hashes = [hash_config(as_dict(composed([f"study={study}"], root="study"))) for study in STUDIES]
    assert len(set(hashes)) == len(STUDIES)


def test_every_study_is_in_a_suite() -> None:
    """But for those that need a GPU; and suites list what there is, once each."""
    listed = {suite: rows_of(suite) for suite in SUITES}
    assert all(len(set(rows)) == len(rows) for rows in listed.values())
    assert {row for rows in listed.values() for row in rows} == set(STUDIES) - {
        "table2/cuda",
        "throughput/table3_vision",
        "throughput/table3_language",
    }


@pytest.mark.parametrize("suite", SUITES)
def test_suite_names_its_own_command(suite: str) -> None:
    content = (CONFIGS / "suite" / f"{suite}.yaml").read_text()
    assert content.startswith("# @package _global_\n")
    assert f"#   python scripts/study.py suite={suite}\n" in content
    assert yaml.safe_load(content)["hydra"]["mode"] == "MULTIRUN"


# --- A study and its record ------------------------------------------------------------------


def own_study(workplace: Workplace, *lines: str) -> Path:
    """Make the study tiny in its own file, which is no deviation from it; return the file."""
    copy = workplace.path / "configs"
    shutil.copytree(workplace.configs, copy)
    workplace.configs = copy
    path = copy / "study" / "figure1" / "tanh.yaml"
    target = "{_target_: phantomgrad.studies.Precision, _convert_: all"
    path.write_text(
        "\n".join(["# @package _global_", *lines, f"setting: {target}, {', '.join(SETTING)}}}"])
    )
    return path


def test_study_writes_its_record(workplace: Workplace) -> None:
    """In its folder and, as nothing was overridden but circumstances, among the results."""
    own_study(workplace)
    folder = workplace.study(STUDY, "seed=3")
    assert folder == workplace.path / "runs" / "figure1" / "tanh" / "seed3"
    record = read_study(folder / "record.json")
    published = workplace.path / "results" / "records" / "figure1" / "tanh" / "seed3.json"
    assert published.read_bytes() == (folder / "record.json").read_bytes()
    assert (record.row, record.instance) == ("figure1/tanh", "seed3")
    assert (record.protocol, record.changes) == ("full", [])
    assert record.setting["size"] == 16
    assert record.setting["steps"] == [1, 2]
    assert "_target_" not in record.setting
    assert record.numbers["exact"]["agreement"]["n"] == 7
    assert len(record.checks) >= 4
    assert all(check.holds for check in record.checks)
    assert set(record.seconds) == {"total", "cpu"}
    assert record.config_hash == hash_config(record.config)
    assert record.config["run"]["instance"] == "seed3"
    assert torch.__version__.startswith(record.environment["versions"]["torch"])


def test_study_that_is_reduced_says_so(workplace: Workplace) -> None:
    """By its own file, that is: it is published, with what it reduces."""
    own_study(workplace, "reduced: [7 of 50,000 samples]".replace(",000", " 000"))
    record = read_study(workplace.study(STUDY) / "record.json")
    assert (record.protocol, record.changes) == ("reduced", ["7 of 50 000 samples"])
    assert (workplace.path / "results/records/figure1/tanh/seed0.json").exists()


def test_changed_study_is_reduced_and_not_published(workplace: Workplace) -> None:
    """It has a folder of its own, named by the hash of what it does."""
    record = read_study(workplace.study(*TINY) / "record.json")
    assert record.protocol == "reduced"
    assert record.changes == [line for line in TINY if line != STUDY]
    assert record.instance == f"seed0-{record.config_hash[:8]}"
    assert not (workplace.path / "results").exists()


def test_finished_study_is_skipped(workplace: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    folder = workplace.study(*TINY)
    before = (folder / "record.json").stat().st_mtime_ns
    assert workplace.study(*TINY) == folder
    assert (folder / "record.json").stat().st_mtime_ns == before
    assert caplog.messages[-1].startswith(f"figure1/tanh {folder.name}: finished, skipped (")


def test_study_that_was_changed_since_is_not_overwritten(workplace: Workplace) -> None:
    path = own_study(workplace)
    record = workplace.study(STUDY) / "record.json"
    before = record.read_bytes()
    path.write_text(path.read_text().replace("samples: 7", "samples: 8"))
    with pytest.raises(UserError, match="holds a finished run of another configuration"):
        workplace.study(STUDY)
    assert record.read_bytes() == before


# --- What goes wrong -------------------------------------------------------------------------


class Doubtful(Study):
    """A study with a claim that holds and two that do not."""

    def measure(self, seed: int, device: torch.device, track: Track = silently) -> Findings:
        return Findings(
            {"seed": seed},
            [
                Check.above("water is wet", 2.0, 1.0),
                Check.below("pigs fly", 2.5, 1.0),
                Check.above("nothing is known", float("nan"), 0.5),
            ],
            "all measured",
        )


def test_failed_claims_are_recorded_and_named(
    workplace: Workplace, caplog: pytest.LogCaptureFixture
) -> None:
    """The record is there, so the next start has nothing to do, but says the same again."""
    caplog.set_level(logging.INFO)
    path = own_study(workplace)
    path.write_text("# @package _global_\nsetting: {_target_: test_study.Doubtful}\n")
    with pytest.raises(UserError) as caught:
        workplace.study(STUDY)
    assert str(caught.value) == (
        "figure1/tanh: what should hold does not: "
        "pigs fly: 2.5 (bound 1); nothing is known: nan (bound 0.5)"
    )
    record = read_study(workplace.path / "results/records/figure1/tanh/seed0.json")
    assert [check.holds for check in record.checks] == [True, False, False]
    with pytest.raises(UserError, match="pigs fly"):
        workplace.study(STUDY)
    assert "finished, skipped" in caplog.messages[-1]


def test_where_and_how_a_study_is_measured_tells(workplace: Workplace) -> None:
    """Another number of threads, or another device, is another record: times depend on it."""
    plain = read_study(workplace.study(*TINY) / "record.json")
    other = read_study(workplace.study(*TINY, "threads=1") / "record.json")
    assert other.changes == [*plain.changes, "threads=1"]
    assert other.instance != plain.instance


def test_what_is_no_study_is_refused(workplace: Workplace) -> None:
    path = own_study(workplace)
    path.write_text("# @package _global_\nsetting: {_target_: phantomgrad.FixedPoint}\n")
    with pytest.raises(UserError, match=r"setting\._target_ must be a study, got FixedPoint"):
        workplace.study(STUDY)


# --- The script ------------------------------------------------------------------------------


def test_script_does_a_study_and_skips_it_the_second_time(study_script: Script) -> None:
    first, second = study_script(*TINY), study_script(*TINY)
    assert (first.code, second.code) == (0, 0)
    assert "the two exact gradients agree to a cosine of" in first.out
    assert "finished, skipped" in second.out


def test_script_fails_with_a_claim(study_script: Script, workplace: Workplace) -> None:
    """Two evaluations find no equilibrium: the exit status and the last line tell."""
    outcome = study_script(*TINY, "setting.iterations=2")
    assert outcome.code == 1
    said = outcome.out.splitlines()[-1]
    assert said.startswith("figure1/tanh: what should hold does not: ")
    assert re.search(r"largest relative error of h\*: 0\.\d+ \(bound 1e-05\)", said)
    (path,) = workplace.path.glob("runs/**/record.json")
    assert not all(check.holds for check in read_study(path).checks)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("study=figure1/tnah",), "there is no study 'figure1/tnah'; the nearest are figure1/tanh"),
        (("suite=defualt",), "there is no suite 'defualt'; the nearest are default "),
        ((STUDY, "setting.sample=3"), "there is no setting 'setting.sample'; the nearest are sett"),
        (
            ("suite=default", "seeds=3"),
            "there is no setting 'seeds'; the nearest are seed",
        ),
        ((STUDY, "x y"), "cannot read the overrides:"),
    ],
)
def test_script_answers_a_mistake_in_one_line(
    study_script: Script, arguments: tuple[str, ...], message: str
) -> None:
    outcome = study_script(*arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(message)
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("setting.samples=0", "setting cannot be built: .*samples must be at least 1, got 0"),
        ("setting.dampings=[2]", r"setting cannot be built: .*damping must lie in \(0, 1\], got 2"),
        ("setting.lipschitz=0", "setting cannot be built: .*lipschitz must be positive, got 0"),
        ("setting.nonlinearity=sin", "setting cannot be built: .*must be one of linear, relu, "),
        ("setting.samples=1.5", "setting cannot be built: .*samples must be an integer, got 1.5"),
        ("setting.steps=3", "setting cannot be built: .*steps must be a list, got 3"),
        ("threads=0", "threads must be a positive integer, got 0"),
        ("seed=-1", "seed must be an integer from 0 to"),
        ("device=cuda", "device=cuda, but torch sees no CUDA device"),
        ("device=cuda:1", "device=cuda:1, but torch sees no CUDA device"),
        ("device=tpu", "device must be cpu or cuda, got 'tpu'"),
        ("device=meta", "device must be cpu or cuda, got 'meta'"),
    ],
)
def test_script_says_what_stops_a_study_in_one_line(
    study_script: Script,
    workplace: Workplace,
    monkeypatch: pytest.MonkeyPatch,
    override: str,
    message: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    outcome = study_script(*TINY, override)
    assert (outcome.code, outcome.err) == (1, "")
    assert re.match(message, outcome.out)
    assert outcome.out.count("\n") == 1
    assert [path.name for path in workplace.path.glob("**/*.json")] in ([], ["attempt.json"])


# --- Suites ----------------------------------------------------------------------------------


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, list[str]]]:
    """What the script starts, in the place of starting it; Figure 4 on tanh fails."""
    found = []

    def run(config: Any, row: str | None, overrides: list[str]) -> None:
        found.append((row, overrides))
        if row == "figure4/tanh":
            raise UserError("no luck")

    monkeypatch.setattr("phantomgrad.study.run", run)
    return found


@pytest.mark.parametrize("suite", SUITES)
def test_suite_launches_its_rows_and_goes_on_after_a_failure(
    study_script: Script, launched: list[tuple[Any, list[str]]], suite: str
) -> None:
    """All of them, in order; the exit status tells that one failed."""
    outcome = study_script(f"suite={suite}", "seed=5")
    rows = rows_of(suite)
    assert [row for row, _ in launched] == rows
    assert all("seed=5" in overrides for _, overrides in launched)
    assert outcome.code == ("figure4/tanh" in rows)
    assert outcome.out.count("no luck") == ("figure4/tanh" in rows)


def test_suite_does_its_studies(study_script: Script, workplace: Workplace) -> None:
    """Really, that is; the rows may be chosen on the command line."""
    rows = ("figure4/linear", "figure4/relu")
    tiny = ("size=8", "rows=2", "samples=2", "iterations=3", "lipschitz=[0.9]")
    outcome = study_script(
        "suite=default", f"study={','.join(rows)}", *(f"setting.{t}" for t in tiny)
    )
    assert outcome.code == 0
    done = [line.split()[0] for line in outcome.out.splitlines() if "Broyden ends at" in line]
    assert done == list(rows)
    assert len(list(workplace.path.glob("runs/figure4/*/seed0-*/record.json"))) == 2


@pytest.mark.parametrize(
    "line",
    [
        "",
        "study=figure4/relu setting.iterations=5 device=cuda",
        "suite=default",
        # A setting of the rows of the suite, not of the root's own study.
        "suite=figure4 setting.forward_iterations=7",
        "study=figure1/tanh,figure1/relu seed=range(3)",
        "-m study=anything/at_all",
    ],
)
def test_right_command_lines_pass(line: str) -> None:
    check_overrides(line.split(), root="study")


@pytest.mark.parametrize(
    ("study", "setting", "nearest"),
    [
        ("figure1/tanh", "setting.forward_iterations=7", "setting.iterations"),
        ("figure4/tanh", "setting.forward_iteration=7", "setting.forward_iterations"),
    ],
)
def test_the_settings_suggested_are_those_of_the_study(
    study: str, setting: str, nearest: str
) -> None:
    """And where the rest of them are."""
    said = rf"'{setting[:-2]}'; the nearest are {nearest}, .* \(all of them: configs/study\.yaml\)"
    with pytest.raises(UserError, match=said):
        check_overrides([f"study={study}", setting], root="study")
