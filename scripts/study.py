"""Do one study of the gradient, or all of a suite.

python scripts/study.py study=figure1/tanh
python scripts/study.py suite=default
python scripts/study.py study=figure1/tanh setting.lipschitz=0.99 setting.samples=1000
"""

import logging
import os
import sys

# The profiler, which counts memory on the CPU, would otherwise report its own doings.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
# Large pages for large tensors: a step of MDEQ-Tiny on the CPU has 600,000 page faults without.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

import hydra
from omegaconf import DictConfig

from phantomgrad_suite.jobs.command_line import check_overrides
from phantomgrad_suite.jobs.job import describe_failure
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.study import run_study

failures: list[str] = []


@hydra.main(version_base="1.3", config_path="../configs", config_name="study")
def main(config: DictConfig) -> None:
    """Execute one study; a suite goes on with its next one after a failure."""
    try:
        run_study(config)
    except UserError as error:
        failures.append(describe_failure(error, config))
        logging.getLogger("phantomgrad_suite").error(failures[-1])


if __name__ == "__main__":
    try:
        check_overrides(sys.argv[1:], root="study")
    except UserError as error:
        sys.exit(str(error))
    main()
    sys.exit(1 if failures else 0)
