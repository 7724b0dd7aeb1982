"""Evaluate models on their data; exit with 1 if one does not give its recorded test value.

python scripts/verify.py                                  all of results/weights
python scripts/verify.py digits/upg_k5_d0.5               one of them
python scripts/verify.py runs/digits/implicit/seed0       a run of yours, its weights
python scripts/verify.py --data /data                     data sets elsewhere
"""

import argparse
import sys
from pathlib import Path

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.released import verify

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    sys.exit(0 if verify(options.names, options.data) else 1)
