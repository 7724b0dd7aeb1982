"""Train one row, or the rows of a whole table.

python scripts/train.py experiment=table4/cox2_upg_k5_d0.5 dataset.fold=0
python scripts/train.py table=table4 cluster=local                   several runs at once
python scripts/train.py table=table1 cluster=slurm runtime.cluster.partition=gpu
python scripts/train.py gradient=npg gradient.steps=9 trainer.max_epochs=20
"""

import os

# Large pages for large tensors: a step of MDEQ-Tiny on the CPU has 600,000 page faults without.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.jobs.command_line import run_script
from phantomgrad_suite.start import train

if __name__ == "__main__":
    run_script(train, "train")
