"""Show what made a checkpoint or a record, how far its run got, and what it holds.

python scripts/show.py runs/digits/implicit/seed0/checkpoints/last.ckpt
python scripts/show.py runs/digits/implicit/seed0               its record, or its last checkpoint
python scripts/show.py runs/digits/implicit/seed0 --config      and its configuration
"""

import argparse
from pathlib import Path

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.show import describe

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--config", action="store_true")
    options = parser.parse_args()
    print(describe(options.path, config=options.config))
