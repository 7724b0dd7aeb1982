"""Evaluate the weights that a finished run has kept; exit with 1 if a test value has changed.

python scripts/evaluate.py runs/digits/implicit/seed0
python scripts/evaluate.py runs/table1/implicit/seed0 runtime.dataset.root=/data/cifar10
"""

import argparse
import sys
from pathlib import Path

from phantomgrad_suite.process import start

start()

from phantomgrad_suite.released import evaluate

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder of the run")
    parser.add_argument("overrides", nargs="*", metavar="runtime.KEY=VALUE")
    options = parser.parse_args()
    sys.exit(0 if evaluate(options.folder, options.overrides) else 1)
