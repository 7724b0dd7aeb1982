"""Run one study, or several.

python scripts/study.py study=figure1/tanh
python scripts/study.py 'study=figure4/*'
python scripts/study.py study=scaling run=reasoning/sudoku6/seed0
python scripts/study.py study=figure1/tanh setting.lipschitz=0.99 setting.samples=1000
"""

import os

# The profiler, which counts memory on the CPU, would otherwise log its own activity.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
# Large pages for large tensors: a step of MDEQ-Tiny on the CPU has 600,000 page faults without.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.jobs.command_line import run_script
from phantomgrad_suite.start import run_study

if __name__ == "__main__":
    run_script(run_study, "study")
