"""Measure time and memory of our solvers and layers against torchdeq 0.1.0.

python scripts/bench.py
python scripts/bench.py device=cpu only=mdeq repeats=3
"""

import os
import sys

# The profiler, which counts memory on the CPU, would otherwise log its own activity.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
# Large pages for large tensors: a step of MDEQ-Tiny on the CPU has 600,000 page faults without.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

import hydra
from omegaconf import DictConfig

from phantomgrad_suite.bench import Options, run
from phantomgrad_suite.runs.errors import UserError


@hydra.main(version_base="1.3", config_path="../configs", config_name="bench")
def main(config: DictConfig) -> None:
    """Measure the cases that the configuration asks for."""
    try:
        run(Options(**config))
    except (UserError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
