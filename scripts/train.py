"""Train one row, or the rows of a whole table.

python scripts/train.py experiment=table4/cox2_upg_k5_d0.5 dataset.fold=0
python scripts/train.py table=table4 cluster=local                   several runs at once
python scripts/train.py table=table1 cluster=slurm runtime.cluster.partition=gpu
python scripts/train.py gradient=npg gradient.steps=9 trainer.max_epochs=20
"""

import logging
import os
import sys

# Large pages for large tensors: a step of MDEQ-Tiny on the CPU has 600,000 page faults without.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

import hydra
from omegaconf import DictConfig

from phantomgrad_suite.jobs.command_line import check_overrides
from phantomgrad_suite.jobs.job import describe_failure, is_repeated
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.train import train

failures: list[str] = []


@hydra.main(version_base="1.3", config_path="../configs", config_name="train")
def main(config: DictConfig) -> None:
    """Execute one run; a table goes on with its next row after a failure."""
    try:
        train(config)
    except UserError as error:
        message = describe_failure(error, config)
        if not is_repeated(error, failures):
            logging.getLogger("phantomgrad_suite").error(message)
        failures.append(message)


if __name__ == "__main__":
    try:
        check_overrides(sys.argv[1:])
    except UserError as error:
        sys.exit(str(error))
    main()
    sys.exit(1 if failures else 0)
