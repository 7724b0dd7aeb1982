"""Say how far the tables are, from the files of their runs.

python scripts/status.py                     all tables, and what is running
python scripts/status.py --table table4      one table, row by row
python scripts/status.py --failed            what has failed, and by what
"""

import sys
from pathlib import Path

from phantomgrad_suite.dashboard.status import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1] / "configs"))
