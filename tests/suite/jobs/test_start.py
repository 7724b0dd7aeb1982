"""What a command costs before work starts: counted in imports and compositions, not in seconds."""

import subprocess
import sys

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import OmegaConf
from train.chains import ROW
from training import ON_CPU, SCRIPT

from hydra_plugins import phantomgrad_sweeper
from phantomgrad_suite.jobs.compose import _TOP_LEVEL
from phantomgrad_suite.runs.configs import CONFIGS

RUN = [ROW, "trainer.max_epochs=1", ON_CPU]
COMMANDS = f"""
import runpy, sys
for arguments in [["--help"], ["table=chains", "cluster=list"], {RUN}]:
    sys.argv = ["train.py", *arguments]
    try:
        runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
print("imported:", *({{"torch", "lightning", "scipy", "numpy"}} & set(sys.modules)))
"""


def test_help_lists_and_skips_do_not_wait_for_torch(workplace):
    workplace.train(*RUN)
    command = [sys.executable, "-c", COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=workplace.path)
    helped, listed = "experiment/chains: implicit, ", "train.py experiment=chains/implicit"
    assert all(text in done.stdout for text in (helped, listed, "finished, skipped"))
    assert done.stdout.splitlines()[-1] == "imported:"


@pytest.mark.parametrize(
    ("line", "rows", "runs"),
    [
        ("experiment=table4/cox2_implicit,table4/ppi_implicit seed=1,2", 2, 4),
        ("experiment=table4/cox2_implicit dataset.fold=range(10)", 1, 10),
    ],
)
def test_rows_are_composed_once_for_all_seeds_and_folds(script, monkeypatch, line, rows, runs):
    """The others are what Hydra would compose."""
    composed = []
    load, fill_in = (
        loader.load_sweep_config for loader in (ConfigLoaderImpl, phantomgrad_sweeper._OncePerRow)
    )

    def counted(self, master_config, sweep_overrides):
        composed.append(sweep_overrides)
        return load(self, master_config, sweep_overrides)

    def compared(self, master_config, sweep_overrides):
        found = fill_in(self, master_config, sweep_overrides)
        if sweep_overrides[-1] in ("dataset.fold=9", "seed=2"):
            whole = load(self._loader, master_config, sweep_overrides)
            for config in (found, whole):
                del config.hydra.job.override_dirname
            assert OmegaConf.to_container(found) == OmegaConf.to_container(whole)
        return found

    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", counted)
    monkeypatch.setattr(phantomgrad_sweeper._OncePerRow, "load_sweep_config", compared)
    outcome = script(*line.split(), "cluster=list")
    assert (outcome.code, len(outcome.out.splitlines()), len(composed)) == (0, runs, rows)


@pytest.mark.parametrize("root", ["train", "study"])
def test_settings_of_a_root_are_those_that_hydra_composes(root):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        assert list(compose(root)) == list(_TOP_LEVEL[root])
