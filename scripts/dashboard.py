"""Follow the runs on a live page, or put the finished runs of a table on wandb.

python scripts/dashboard.py                          http://127.0.0.1:8000; or port=8001, runs=DIR
python scripts/dashboard.py wandb table=table4       its finished runs, as files for `wandb sync`
python scripts/dashboard.py wandb table=table4 --online   sent at once, with a report of the table
"""

import sys
from pathlib import Path

from phantomgrad_suite.dashboard.command import dashboard

if __name__ == "__main__":
    sys.exit(dashboard(sys.argv[1:], Path(__file__).resolve().parents[1] / "configs"))
