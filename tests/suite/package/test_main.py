"""The installed command, and the first lines of each script."""

import signal
import subprocess
import sys

import pytest
from graph_data import REPOSITORY

from phantomgrad_suite import main as module
from phantomgrad_suite.runs.errors import UserError


def call(monkeypatch, *arguments):
    """Return the exit code of ``phantomgrad ARGUMENTS``: 0, a number, or a message."""
    monkeypatch.setattr("sys.argv", ["phantomgrad", *arguments])
    with pytest.raises(SystemExit) as stopped:
        module.main()
    return stopped.value.code or 0


def test_commands_are_scripts_in_any_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "status", "--table", "digits") == 0
    assert "digits/upg_k5_d0.5" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["phantomgrad", "show", "nothing.json"])
    with pytest.raises(UserError, match=r"^there is no file nothing.json: name a checkpoint, a"):
        module.main()


def test_usage_and_mistakes(monkeypatch, capsys):
    for arguments in ((), ("--help",)):
        assert call(monkeypatch, *arguments) == 0
        assert "phantomgrad COMMAND is python scripts/COMMAND.py" in capsys.readouterr().out
    assert str(call(monkeypatch, "trian")).startswith("phantomgrad has no command trian: choose")


def test_interrupt_ends_a_command_without_a_traceback():
    start = "from phantomgrad_suite.brief_errors import brief_errors; brief_errors()"
    program = f"{start}; raise KeyboardInterrupt"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (-signal.SIGINT, b"interrupted\n")


def test_every_script_of_a_user_starts_so():
    others = {"lock.py", "make_thumbnails.py"}
    for script in (REPOSITORY / "scripts").glob("*.py"):
        assert ("\nbrief_errors()\n" in script.read_text()) == (script.name not in others), script
