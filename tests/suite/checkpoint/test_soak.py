"""A short soak; ``make soak`` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked, as on Linux")
def test_disturbed_runs_equal_the_undisturbed_ones(tmp_path: Path) -> None:
    script = Path(__file__).with_name("soak.py")
    command = [sys.executable, "-W", "ignore", str(script), "6", "--rows", "chains", "mdeq"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every run equals the undisturbed one in every bit" in done.stdout
    assert int(done.stdout.splitlines()[-1].split()[0]) >= 6
