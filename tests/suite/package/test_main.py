"""The installed command."""

import pytest

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


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_usage(monkeypatch, capsys, arguments):
    assert call(monkeypatch, *arguments) == 0
    assert "phantomgrad COMMAND is python scripts/COMMAND.py" in capsys.readouterr().out


def test_mistakes(monkeypatch):
    assert str(call(monkeypatch, "trian")).startswith("phantomgrad has no command trian: choose")
