"""A run of the benchmark: its cases, its files, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch

from phantomgrad_suite.bench import Options, peer, run
from phantomgrad_suite.bench.cases import graph_case, solver_cases, training_cases
from phantomgrad_suite.bench.contest import IMPLICIT, OURS
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.studies.meters import Clock

pytestmark = [
    pytest.mark.usefixtures("float32"),  # as the benchmark runs
    pytest.mark.filterwarnings("ignore:.*Profiler.*"),
]


@pytest.fixture(autouse=True)
def _threads() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


needs_peer = pytest.mark.skipif(peer.version() is None, reason=peer.MISSING)


@needs_peer
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"only": "fixed point (512"}, "cpu-fixed-point-512"),
        ({"only": "FIXED POINT (512", "threads": 2}, "cpu-2threads-fixed-point-512"),
    ],
)
def test_a_run_of_a_case_writes_data_and_table(options, name, tmp_path) -> None:
    """The files have a name of their own, so that a partial run does not replace a full one."""
    run(Options(device="cpu", repeats=2, output=str(tmp_path), **options))
    assert {p.name for p in tmp_path.iterdir()} == {f"{name}.json", f"{name}.md"}
    data = json.loads((tmp_path / f"{name}.json").read_text())
    threads = options.get("threads", 1)
    assert (data["device"], data["environment"]["threads"]) == ("cpu", threads)
    assert data["clock"] == ("CPU time" if threads == 1 else "wall clock")
    assert data["torchdeq"] == peer.version()
    (case,) = data["cases"]
    assert len(case["contenders"][OURS]["seconds"]["total"]["samples"]) == 2
    assert "| fixed point (512, 128)" in (tmp_path / f"{name}.md").read_text()


def test_without_the_peer_the_run_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "version", lambda: None)
    with pytest.raises(UserError, match=r"pip install -e '.\[bench\]' in the checkout"):
        run(Options(device="cpu"))


@needs_peer
def test_without_cox2_its_case_is_left_out(tmp_path, caplog) -> None:
    options = {"data": str(tmp_path / "nowhere"), "output": str(tmp_path)}
    run(Options(device="cpu", only="COX2", **options))
    assert "IGNN on COX2, 128 graphs, UPG is left out: COX2 is not in" in caplog.text


@needs_peer
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device must be auto, cpu or cuda, got 'tpu'"),
        ({"device": "cpu", "only": "Newton"}, "no case has 'Newton' in its name; there are"),
    ],
)
def test_an_unknown_device_or_case_is_refused(options, message, tmp_path) -> None:
    with pytest.raises(UserError, match=message):
        run(Options(output=str(tmp_path), **options))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"seconds": -1.0}, "seconds must not be negative, got -1.0"),
    ],
)
def test_bad_options_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options(**options)


def test_the_step_of_ignn_has_our_three_gradients(small_tu: Path) -> None:
    case = graph_case(str(small_tu), epochs=1)
    assert list(case.contenders) == [OURS, IMPLICIT, "our NPG"]
    for build in case.contenders.values():
        found = build(Clock(torch.device("cpu")))()
        assert found.seconds.keys() == {"step", "forward", "backward", "step in f"}
        assert found.evaluations > 1


def test_the_cases_of_a_full_run() -> None:
    """Those that the README quotes among them."""
    names = {case.name for case in [*solver_cases(), *training_cases()]}
    steps = ("MDEQ-Tiny, 64 images", "MDEQ-Large, 8 images", "TransformerLM, 16 x 64 words")
    assert {f"{step}, {by}" for step in steps for by in ("implicit", "UPG")} < names
    assert len(names) == 12 + 6
