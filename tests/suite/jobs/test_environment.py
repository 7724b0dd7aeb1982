"""What a record says that a run was run with."""

from __future__ import annotations

import importlib.metadata

import pytest
import torch

from phantomgrad_suite.jobs.environment import describe_environment, own_device

CPU = torch.device("cpu")


def pretend(monkeypatch: pytest.MonkeyPatch, cuda: str | None, cudnn: int | None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"a GPU, {device}")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: cudnn)


def test_versions_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = describe_environment(CPU)["versions"]
    for package in ("torch", "torchvision", "torchmetrics", "lightning", "numpy"):
        assert versions[package] == importlib.metadata.version(package)

    def nothing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nothing)
    assert not {"torch", "torchvision"} & describe_environment(CPU)["versions"].keys()


def test_gpu_brings_versions_of_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "13.0", 91900)
    found = describe_environment(torch.device("cuda", 1))
    assert (found["versions"]["cuda"], found["versions"]["cudnn"]) == ("13.0", "91900")
    assert found["accelerator"] == "a GPU, cuda:1"
    pretend(monkeypatch, None, None)
    assert not {"cuda", "cudnn"} & describe_environment(CPU)["versions"].keys()


def test_gpu_that_is_not_used_is_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "13.0", 91900)
    assert describe_environment(CPU)["accelerator"] is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_machine_without_a_gpu_names_none() -> None:
    found = describe_environment(CPU)
    assert found["accelerator"] is None
    assert not {"cuda", "cudnn"} & found["versions"].keys()


def test_own_device_is_among_those_that_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler may show each process one GPU alone, whatever its number."""
    pretend(monkeypatch, "13.0", 91900)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device("auto") == torch.device("cuda", 1)
    assert own_device("cpu") == CPU
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert own_device("auto") == torch.device("cuda", 0)
