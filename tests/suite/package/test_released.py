"""Released models: the weights and record of a run, loaded and verified without the run."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import phantomgrad_suite
from phantomgrad_suite import load_model
from phantomgrad_suite.jobs.build import build_data, build_task
from phantomgrad_suite.jobs.trained import configuration
from phantomgrad_suite.released import release, released, verify
from phantomgrad_suite.runs.configs import RESULTS
from phantomgrad_suite.runs.errors import MissingDataError, UserError
from phantomgrad_suite.runs.records import read_record, write_record

RUN = ("experiment=chains/upg_k5_d0.5", "trainer.max_epochs=2")
NAME = "chains/upg_k5_d0.5/seed0"


@pytest.fixture
def folder(workplace, whole_runs):
    """A copy of the folder of a short run, with the record of a clean checkout."""
    folder = Path(shutil.copytree(whole_runs.train(workplace, *RUN), workplace.path / "run"))
    record = read_record(folder / "record.json")
    clean = {**record.environment, "git": "0123456789"}
    write_record(replace(record, instance="seed0", environment=clean), folder / "record.json")
    return folder


@pytest.fixture
def results(folder, tmp_path):
    """A folder of results with the weights of that run."""
    assert release(folder, tmp_path / "results").name == "seed0.safetensors"
    return tmp_path / "results"


def test_loaded_model_is_that_of_the_run(folder, results):
    record = read_record(folder / "record.json")
    task = build_task(configuration(record), build_data(configuration(record)))
    task.model.load_state_dict(torch.load(folder / "weights" / "last.pt", weights_only=True))
    for name in (NAME, "chains/upg_k5_d0.5", str(folder)):
        model = load_model(name, results)
        assert not model.training
        expected = task.model.state_dict()
        assert model.state_dict().keys() == expected.keys()
        assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())


def test_a_run_is_verified_on_its_data_and_without_its_device(folder, monkeypatch, capsys):
    record = read_record(folder / "record.json")
    record.config["runtime"]["trainer"]["accelerator"] = "gpu"
    write_record(record, folder / "record.json")
    assert verify([str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", ")[1].split()[0] for line in lines] == ["last", "selected"]

    def missing(config):
        raise MissingDataError("the data are gone")

    monkeypatch.setattr("phantomgrad_suite.released.prepare", missing)
    with pytest.raises(MissingDataError, match="the data are gone"):
        verify([str(folder)])


@pytest.mark.parametrize(
    ("root", "found"),
    [
        (None, None),
        ("data/TUDataset", "here/TUDataset"),
        ("/elsewhere/TUDataset", "here/TUDataset"),
    ],
)
def test_data_are_found_wherever_they_were_when_the_model_was_trained(
    root, found, folder, tmp_path
):
    record = read_record(folder / "record.json")
    record.config["runtime"]["dataset"] = {"root": root} if root else {}
    runtime = configuration(record, tmp_path / "here").runtime
    assert runtime.dataset.get("root") == (found and str(tmp_path / found))


def test_a_released_model_is_verified_listed_and_has_a_checksum(results, capsys):
    assert verify(results=results)
    assert capsys.readouterr().out.startswith(f"{NAME}, last accuracy: recorded ")
    path = results / "weights" / f"{NAME}.safetensors"
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    sums = (results / "weights" / "SHA256SUMS").read_text()
    assert sums == f"{checksum}  {NAME}.safetensors\n"
    assert f"| [{NAME}]({NAME}.json) |" in (results / "weights" / "README.md").read_text()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="is not the file whose checksum weights/SHA256SUMS has"):
        load_model(NAME, results)


def test_models_that_cannot_be_released(folder, tmp_path):
    record = read_record(folder / "record.json")
    changed = {**record.environment, "git": "0123456789+dirty"}
    write_record(replace(record, environment=changed), folder / "record.json")
    with pytest.raises(UserError, match="made from a changed checkout"):
        release(folder, tmp_path)


def test_unknown_names(results):
    with pytest.raises(UserError, match="load_model needs a checkout"):
        load_model("digits", results / "records")
    with pytest.raises(UserError, match="records/weights holds no models to verify"):
        verify(results=results / "records")
    with pytest.raises(UserError, match=f"nor a finished run 'digits': choose from {NAME}"):
        load_model("digits", results)
    with pytest.raises(AttributeError, match="has no attribute 'load_models'"):
        _ = phantomgrad_suite.load_models


@pytest.mark.parametrize("name", released())
def test_published_weights(name, tmp_path, capsys, float32):
    """Each model can be built without its data; it is skipped where they are not included."""
    model = load_model(name)
    record = read_record(RESULTS / "weights" / f"{name}.json")
    assert sum(p.numel() for p in model.parameters()) == record.parameters["total"]
    if not name.startswith(("reasoning", "cpu/")):  # which take minutes: make verify
        assert verify([name], data=tmp_path)
        assert "skipped, " not in capsys.readouterr().out
