"""The command line of the dashboard."""

from __future__ import annotations

import http.client
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dashboard.workshop import Workshop
from graph_data import REPOSITORY

from phantomgrad_suite.dashboard.command import main

CONFIGS = REPOSITORY / "configs"
SCRIPT = REPOSITORY / "scripts" / "dashboard.py"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], CONFIGS) == 0
    assert capsys.readouterr().out.startswith("usage: python scripts/dashboard.py")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prot=1"], "unknown argument prot=1\nusage:"),
        (["--online"], "unknown argument --online\nusage:"),
        (["runs="], "unknown argument runs=\nusage:"),
        (["port=x"], "port must be a number from 0 to 65535, got x"),
        (["port=65536"], "port must be a number from 0 to 65535, got 65536"),
        (["wandb"], "name a table, table=NAME: choose from chains, "),
        (["wandb", "table=tabel4"], "there is no table 'tabel4': choose from chains, "),
        (["wandb", "table=table4", "port=1"], "unknown argument port=1\nusage:"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments, CONFIGS) == 2
    assert capsys.readouterr().err.startswith(f"dashboard: {message}")


def test_script_serves_until_it_is_interrupted(workshop: Workshop) -> None:
    """Without torch, without a word on the way out, and without writing anything."""
    workshop.folder("toy/upg", "seed0")
    before = sorted(workshop.path.rglob("*"))
    code = (
        "import atexit, runpy, signal, sys\n"
        # Of processes in the background the shell has it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "heavy = {'torch', 'hydra', 'omegaconf', 'lightning', 'numpy', 'wandb'}\n"
        "atexit.register(lambda: print('loaded:', *sorted(heavy & set(sys.modules))))\n"
        f"sys.argv = ['dashboard.py', 'port=0', 'runs={workshop.runs}',"
        f" 'results={workshop.results}']\n"
        f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=workshop.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"the runs of .*, live: http://127.0.0.1:(\d+)/ \(Ctrl-C .*\)\n", line)
        assert found, line
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
        connection.request("GET", "/live.json")
        assert b'"toy/upg"' in connection.getresponse().read()
        connection.close()
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out.split(), err) == (0, ["loaded:"], "")
    assert sorted(workshop.path.rglob("*")) == before


def test_default_runs_are_those_of_this_folder(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workshop.path)
    pytest.importorskip("wandb")
    assert main(["wandb", "table=toy"], Path("configs")) == 1
    assert "no run of toy is finished" in capsys.readouterr().err
