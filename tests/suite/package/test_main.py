"""The installed command."""

import pytest

from phantomgrad_suite.main import main


def call(monkeypatch, *arguments):
    """Return the exit code of ``phantomgrad ARGUMENTS``: 0, a number, or a message."""
    monkeypatch.setattr("sys.argv", ["phantomgrad", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def test_commands_are_scripts_in_any_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "status", "--table", "digits") == 0
    assert "digits/upg_k5_d0.5" in capsys.readouterr().out
    assert call(monkeypatch, "show", "nothing.json") == (
        "there is no file nothing.json: name a checkpoint, a record or a run folder"
    )


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_usage(monkeypatch, capsys, arguments):
    assert call(monkeypatch, *arguments) == 0
    assert "phantomgrad COMMAND is python scripts/COMMAND.py" in capsys.readouterr().out


def test_mistakes(monkeypatch):
    assert str(call(monkeypatch, "trian")).startswith("phantomgrad has no command trian: choose")
