"""Compare finished runs: changed settings, scores, evaluations, seconds, and a plot of all.

python scripts/compare.py runs/digits/implicit/seed0 runs/digits/upg_k5_d0.5/seed0
python scripts/compare.py RUN RUN --figure compare.svg
"""

import argparse
from pathlib import Path

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.compare import compare

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--figure", type=Path, default=Path("runs/compare.svg"), metavar="FILE")
    options = parser.parse_args()
    print(compare(options.runs, options.figure).fillna("").to_string())
    print(f"\nthe test metric of all: {options.figure}")
