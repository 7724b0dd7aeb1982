"""Replay a step with a NaN or infinite gradient, and show where the first such value arose.

python scripts/replay.py runs/table1/upg_k5_d0.5_no_dropout/seed0/nonfinite/step812-rank0.pt

A run that stops at such a step names its file. Files are unpickled: open only your own. Listed are
the tensors that are not finite, and the largest residual of each solve.
"""

import sys
from pathlib import Path

from phantomgrad_suite.replay import replay
from phantomgrad_suite.runs.errors import UserError

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        for name, found in replay(Path(sys.argv[1])).items():
            print(f"{name:<12}", *found if isinstance(found, list) else [found])
    except UserError as error:
        sys.exit(str(error))
