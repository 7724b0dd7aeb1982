"""Show what made a checkpoint or a record, how far its run got, and what it holds.

python scripts/show.py runs/digits/implicit/seed0/checkpoints/last.ckpt
python scripts/show.py runs/digits/implicit/seed0               its record, or its last checkpoint
python scripts/show.py results/records/digits/implicit/seed0.json --config   and its configuration
"""

import sys
from pathlib import Path

from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.show import describe

if __name__ == "__main__":
    paths = [argument for argument in sys.argv[1:] if argument != "--config"]
    if len(paths) != 1 or paths[0].startswith("-"):
        sys.exit(__doc__)
    try:
        print(describe(Path(paths[0]), config="--config" in sys.argv))
    except UserError as error:
        sys.exit(str(error))
