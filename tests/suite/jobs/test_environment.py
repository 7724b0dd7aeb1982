"""What a record states about the environment of a run, and how exact float32 is."""

import importlib.metadata
import os
from unittest.mock import Mock

import pytest
import torch

from phantomgrad_suite.cluster.slurm import slurm_environment
from phantomgrad_suite.jobs import environment
from phantomgrad_suite.jobs.environment import (
    choose_threads,
    describe_environment,
    set_float32_precision,
)
from phantomgrad_suite.jobs.processes import is_started_by_slurm
from phantomgrad_suite.runs.errors import SettingError

CPU = torch.device("cpu")


def test_package_that_is_missing_has_no_version(monkeypatch):
    nothing = Mock(side_effect=importlib.metadata.PackageNotFoundError)
    monkeypatch.setattr(importlib.metadata, "version", nothing)
    assert not {"torch", "torchvision"} & describe_environment(CPU)["versions"].keys()


@pytest.fixture
def left_as_it_was():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True  # torch's own


@pytest.mark.usefixtures("left_as_it_was")
@pytest.mark.parametrize(
    ("number", "omp", "expected"), [(None, None, 1), (None, "3", 3), (2, None, 2), (2, "3", 2)]
)
def test_run_has_one_thread_unless_the_user_has_chosen(monkeypatch, caplog, number, omp, expected):
    """``OMP_NUM_THREADS`` has been read by torch, when it was imported."""
    caplog.set_level("INFO")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if omp:
        monkeypatch.setenv("OMP_NUM_THREADS", omp)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    environment._say.cache_clear()
    torch.set_num_threads(3)
    for _ in range(2):
        choose_threads(number, "runtime.threads")
    assert describe_environment(CPU)["threads"] == expected
    line = ["one CPU thread; for more: runtime.threads=<number>, or OMP_NUM_THREADS"]
    assert caplog.messages == (line if expected == 1 else [])


def test_tasks_of_slurm_need_a_number_on_each_node(monkeypatch):
    """Lightning would raise a RuntimeError, with or without srun."""
    monkeypatch.setenv("SLURM_JOB_NAME", "train.sh")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE", raising=False)
    for ask in (is_started_by_slurm, slurm_environment):
        with pytest.raises(SettingError, match=r"^SLURM_NTASKS=4 .* srun --ntasks-per-node=4, "):
            ask()
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "4")
    assert is_started_by_slurm()
    monkeypatch.setenv("SLURM_JOB_NAME", "bash")
    assert not is_started_by_slurm()


@pytest.mark.usefixtures("left_as_it_was")
@pytest.mark.parametrize(("precision", "tf32"), [("highest", False), ("high", True)])
def test_convolutions_are_as_exact_as_products(precision, tf32):
    """Torch alone would leave them in TF32."""
    torch.backends.cudnn.allow_tf32 = not tf32
    set_float32_precision(precision)
    assert torch.get_float32_matmul_precision() == precision
    assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == tf32
