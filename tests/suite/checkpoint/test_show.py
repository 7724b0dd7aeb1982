"""Descriptions of checkpoints and records."""

import shlex

import pytest
import torch
import yaml
from interruptions import interrupted
from train.chains import CHAINS

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.show import describe


def test_checkpoint_and_record_are_described(workplace):
    folder = interrupted(workplace, 4, *CHAINS)
    text = describe(folder)
    facts = yaml.safe_load(text)
    command = (
        "python scripts/train.py runtime.trainer.accelerator=cpu experiment=chains/upg_k5_d0.5"
    )
    assert facts["command"].startswith(command)
    assert (facts["row"], facts["instance"][:6]) == ("chains/upg_k5_d0.5", "seed0-")
    assert facts["changes"] == ["trainer.max_epochs=6"]
    assert facts["progress"] == "in epoch 2 of 6, after step 2"
    assert f"torch: {torch.__version__}"[:10] in text
    assert "max_epochs: 6" not in text
    assert "max_epochs: 6" in describe(folder / "checkpoints" / "last.ckpt", config=True)
    folder = workplace.train(*CHAINS)
    facts = yaml.safe_load(describe(folder))
    assert facts["label"] == {"dataset": "Chains", "model": "IGNN", "method": "UPG A(5, 0.5)"}
    assert facts["result"]["metric"] == "accuracy"
    assert "trainer.max_epochs=6" in facts["changes"]
    assert facts["weights"]["last"]["epoch"] == 6


def test_command_of_a_row_of_a_table_does_that_row_alone(script, workplace):
    short = ("trainer.max_epochs=1", "runtime.checkpoint.every_n_epochs=1")
    assert script("-m", "experiment=chains/implicit,chains/upg_k5_d0.5", *short).code == 0
    for checkpoint in sorted(workplace.path.glob("runs/**/last.ckpt")):
        folder = checkpoint.parents[1]
        command = yaml.safe_load(describe(checkpoint))["command"]
        (folder / "record.json").unlink()
        assert script(*shlex.split(command)[2:]).code == 0
        assert (folder / "record.json").exists()
    assert len(list(workplace.path.glob("runs/**/last.ckpt"))) == 2


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"there is no file .*last.ckpt: name a checkpoint"):
        describe(tmp_path)
    torch.save({"epoch": 3}, tmp_path / "old.ckpt")
    with pytest.raises(UserError, match="is not a checkpoint or record of this project"):
        describe(tmp_path / "old.ckpt")
    (tmp_path / "cut.ckpt").write_bytes((tmp_path / "old.ckpt").read_bytes()[:100])
    with pytest.raises(UserError, match=r"cut.ckpt cannot be read"):
        describe(tmp_path / "cut.ckpt")
