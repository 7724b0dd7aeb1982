"""Copy your records to those that the repository publishes, and make their tables and page.

python scripts/publish.py             from runs/results to results
python scripts/publish.py DIR         from another folder, as report.py takes it with yours=DIR
python scripts/publish.py --weights runs/digits/upg_k5_d0.5/seed0     release the weights of a run
"""

import argparse
import sys
from pathlib import Path

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.released import publish, release
from phantomgrad_suite.report.command import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/results"))
    parser.add_argument("--weights", type=Path, metavar="RUN_FOLDER")
    options = parser.parse_args()
    if options.weights:
        sys.exit(print(release(options.weights)))
    for line in publish(options.folder):
        print(line)
    sys.exit(main([]))
