"""The command lines of ``make status`` and ``make dashboard``."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dashboard.conftest import Workshop
from graph_data import REPOSITORY

from phantomgrad_suite.dashboard.command import dashboard, status

CONFIGS = REPOSITORY / "configs"
# Runs a script and prints which slow imports it has loaded.
LIGHT = """
import atexit, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
slow = {'torch', 'hydra', 'omegaconf', 'lightning', 'numpy', 'wandb'}
atexit.register(lambda: print('loaded:', *sorted(slow & set(sys.modules))))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def light(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", LIGHT, str(REPOSITORY / "scripts" / script), *arguments]


def counts(text: str) -> dict[str, list[str]]:
    lines = [line.split() for line in text.splitlines() if ":" not in line]
    return {line[0]: line[1:] for line in lines[1:]}


def test_counts_of_all_tables(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workshop.path)
    workshop.finished("chains/implicit", "seed0", [0.5])
    workshop.start("chains/implicit", "seed0-abcdef12")
    assert status([], CONFIGS) == 0
    found = counts(capsys.readouterr().out)
    assert found["chains"] == ["9", "1", "·", "·", "·", "8"]
    assert found["table4"][-1] == "180"
    assert found["in"] == ["no", "table", "1", "·", "·", "·", "1", "·"]


def test_one_table_and_failed_runs(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    workshop.start("toy/upg", "seed1")
    workshop.start("toy/implicit", "seed0", failed="out of memory", host="gpu07")
    places = [f"runs={workshop.runs}", f"records={workshop.places.records}"]
    assert status(["--table", "toy", *places], workshop.configs) == 0
    out = capsys.readouterr().out
    assert counts(out)["toy/implicit"] == ["2", "·", "·", "1", "·", "1"]
    failed = "failed: toy/implicit seed0: out of memory (gpu07)"
    stopped = "stopped: toy/upg seed1: no epoch yet, last update 0 s ago "
    assert out.splitlines()[-2] == failed
    assert out.splitlines()[-1].startswith(stopped)
    assert status(["--failed", *places], workshop.configs) == 0
    assert capsys.readouterr().out == f"{failed}\n"


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (status, ["--table", "tabel4"], "argument --table: invalid choice: 'tabel4' (choose from"),
        (status, ["--fialed"], "unrecognized arguments: --fialed"),
        (dashboard, ["prot=1"], "unrecognized arguments: --prot=1"),
        (dashboard, ["port=x"], "argument --port: invalid int value: 'x'"),
        (dashboard, ["wandb"], "wandb and --table belong together: wandb --table table4"),
    ],
)
def test_wrong_arguments(
    command: object, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(command)
    with pytest.raises(SystemExit, match="2"):
        command(arguments, CONFIGS)
    assert message in capsys.readouterr().err


def test_port_out_of_range(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    assert dashboard(["port=65536"], workshop.configs) == 1
    assert capsys.readouterr().err.startswith("dashboard: cannot serve on port 65536 (")


def test_status_imports_nothing_slow(tmp_path: Path) -> None:
    command = light("status.py", "--table", "chains")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_page_is_served_until_it_is_interrupted(workshop: Workshop) -> None:
    """Without slow imports, without output at the end, and without writing anything."""
    workshop.start("toy/upg", "seed0")
    before = sorted(workshop.path.rglob("*"))
    command = light(
        "dashboard.py", "port=0", f"runs={workshop.runs}", f"results={workshop.results}"
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"live page .*: http://127.0.0.1:(\d+)/ \(Ctrl-C .*\)\n", line)
            assert found, line
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
            connection.request("GET", "/live.json")
            assert b'"toy/upg"' in connection.getresponse().read()
            connection.close()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out.split(), err) == (0, ["loaded:"], "")
    assert sorted(workshop.path.rglob("*")) == before
