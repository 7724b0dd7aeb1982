"""Evaluate the weights of a finished run: recorded and recomputed test values, exit code 1 if
they differ.

python scripts/evaluate.py runs/digits/implicit/seed0
python scripts/evaluate.py runs/table1/implicit/seed0 runtime.dataset.root=/data/cifar10
"""

import sys
from pathlib import Path

from phantomgrad_suite.evaluate import evaluate
from phantomgrad_suite.runs.errors import UserError

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        sys.exit(0 if evaluate(Path(sys.argv[1]), sys.argv[2:]) else 1)
    except UserError as error:
        sys.exit(str(error))
