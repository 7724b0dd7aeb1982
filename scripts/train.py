"""Train one row, or the rows of a whole table.

python scripts/train.py experiment=table4/cox2_upg_k5_d0.5 dataset.fold=0
python scripts/train.py table=table4
python scripts/train.py table=table1 cluster=slurm cluster.partition=gpu      or cluster=local, list
python scripts/train.py gradient=npg gradient.steps=9 trainer.max_epochs=20
"""

import logging
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from phantomgrad.cli import check_overrides
from phantomgrad.errors import UserError
from phantomgrad.train import run

failures: list[str] = []


@hydra.main(version_base="1.3", config_path="../configs", config_name="train")
def main(config: DictConfig) -> None:
    """Do one run; a table goes on with its next row after a failure."""
    chosen = HydraConfig.get()
    try:
        run(config, chosen.runtime.choices.get("experiment"), list(chosen.overrides.task))
    except UserError as error:
        failures.append(str(error))
        logging.getLogger("phantomgrad").error(str(error))


if __name__ == "__main__":
    try:
        check_overrides(sys.argv[1:])
    except UserError as error:
        sys.exit(str(error))
    main()
    sys.exit(1 if failures else 0)
