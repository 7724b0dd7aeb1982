"""Train one row, or the rows of a whole table.

python scripts/train.py experiment=table4/cox2_upg_k5_d0.5 dataset.fold=0
python scripts/train.py table=table4
python scripts/train.py table=table1 cluster=slurm cluster.partition=gpu      or cluster=local, list
python scripts/train.py gradient=npg gradient.steps=9 trainer.max_epochs=20
"""

import logging
import os
import sys

# Large pages for large tensors: a step of MDEQ-Tiny on the CPU has 600,000 page faults without.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from phantomgrad_suite.jobs.command_line import check_overrides
from phantomgrad_suite.jobs.job import failure, repeats
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.train import run

failures: list[str] = []


@hydra.main(version_base="1.3", config_path="../configs", config_name="train")
def main(config: DictConfig) -> None:
    """Do one run; a table goes on with its next row after a failure."""
    chosen = HydraConfig.get()
    row = chosen.runtime.choices.get("experiment")
    try:
        run(config, row, list(chosen.overrides.task))
    except UserError as error:
        said = failure(error, config, row)
        if not repeats(error, failures):
            logging.getLogger("phantomgrad_suite").error(said)
        failures.append(said)


if __name__ == "__main__":
    try:
        check_overrides(sys.argv[1:])
    except UserError as error:
        sys.exit(str(error))
    main()
    sys.exit(1 if failures else 0)
