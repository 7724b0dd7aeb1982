"""The first lines of each command: its locale, the variables of processes, and Ctrl-C."""

import os
import signal
import subprocess
import sys

import pytest
from graph_data import REPOSITORY

WITHOUT_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(*command, **environment):
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
    )


def test_files_and_output_are_utf8_in_any_locale():
    program = (
        "from phantomgrad_suite.process import start; start(); "
        "from pathlib import Path; import sys; "
        f"print(sys.argv[1], '\\u03bb' in Path('{REPOSITORY}/README.md').read_text(), '\\u03bb')"
    )
    found = run("-c", program, "an argument", **WITHOUT_UTF8)
    assert (found.stdout.decode(), found.stderr) == ("an argument True λ\n", b"")


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS"])
def test_variable_that_is_no_number_is_refused(name):
    found = run(str(REPOSITORY / "scripts" / "train.py"), "experiment=x", **{name: "abc"})
    assert found.returncode == 1
    assert (
        found.stderr.decode()
        == f"{name} must be a non-negative integer, got 'abc': correct or unset it\n"
    )


def test_interrupt_ends_a_command_without_a_traceback():
    program = "from phantomgrad_suite.process import start; start(); raise KeyboardInterrupt"
    found = run("-c", program)
    assert (found.returncode, found.stderr) == (-signal.SIGINT, b"interrupted\n")


def test_every_script_of_a_user_starts_so():
    others = {"lock.py", "make_thumbnails.py"}
    for script in (REPOSITORY / "scripts").glob("*.py"):
        assert ("\nstart()\n" in script.read_text()) == (script.name not in others), script
