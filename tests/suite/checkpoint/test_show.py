"""Descriptions of checkpoints and records."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from graph_data import REPOSITORY
from interruptions import interrupted
from training import Script, Workplace

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.show import describe

CHAINS = (
    "experiment=chains/upg_k5_d0.5",
    "trainer.max_epochs=12",
    "runtime.checkpoint.every_n_epochs=5",
)


def test_checkpoint_and_record_are_described(workplace: Workplace) -> None:
    folder = interrupted(workplace, 8, *CHAINS)
    text = describe(folder)
    command = next(line for line in text.splitlines() if line.startswith("command"))
    assert (
        "python scripts/train.py runtime.trainer.accelerator=cpu experiment=chains/upg_k5_d0.5"
        in command
    )
    assert "trainer.max_epochs=12" in command
    assert "run        chains/upg_k5_d0.5 seed0-" in text
    assert "label      Chains, IGNN, UPG A(5, 0.5)\nchanges    trainer.max_epochs=12\n" in text
    assert "in epoch 5 of 12, after step 5" in text
    assert f"torch {torch.__version__}"[:10] in text
    assert "max_epochs: 12" not in text
    assert "max_epochs: 12" in describe(folder / "checkpoints" / "last.ckpt", config=True)
    folder = workplace.train(*CHAINS)
    text = describe(folder)
    assert "accuracy   best" in text
    assert re.search(
        r"label +Chains, IGNN, UPG .*\nchanges +300 of .*, trainer.max_epochs=12", text
    )
    record = json.loads((folder / "record.json").read_text())
    for name, wrong in (("environment", 3), ("label", 5), ("seconds", "x")):
        (folder / "record.json").write_text(json.dumps({**record, name: wrong}))
        with pytest.raises(UserError, match=rf"record.json is not a valid record .{name} is"):
            describe(folder)


def test_command_of_a_row_of_a_table_does_that_row_alone(
    script: Script, workplace: Workplace
) -> None:
    short = ("trainer.max_epochs=1", "runtime.checkpoint.every_n_epochs=1")
    assert script("-m", "experiment=chains/implicit,chains/upg_k5_d0.5", *short).code == 0
    for checkpoint in sorted(workplace.path.glob("runs/**/last.ckpt")):
        folder = checkpoint.parents[1]
        command = re.search(r"^command +python \S+ (.*)$", describe(checkpoint), re.M)
        assert command is not None
        (folder / "record.json").unlink()
        assert script(*shlex.split(command[1])).code == 0
        assert (folder / "record.json").exists()
    assert len(list(workplace.path.glob("runs/**/last.ckpt"))) == 2


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*last.ckpt: name a checkpoint"):
        describe(tmp_path)
    torch.save({"epoch": 3}, tmp_path / "old.ckpt")
    with pytest.raises(UserError, match="has no provenance"):
        describe(tmp_path / "old.ckpt")
    (tmp_path / "cut.ckpt").write_bytes((tmp_path / "old.ckpt").read_bytes()[:100])
    with pytest.raises(UserError, match=r"cut.ckpt cannot be read .*BadZipFile|not a zip"):
        describe(tmp_path / "cut.ckpt")


def test_script_answers_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Script(monkeypatch, capsys, REPOSITORY / "scripts" / "show.py", ())("none.ckpt")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert "none.ckpt" in outcome.err
