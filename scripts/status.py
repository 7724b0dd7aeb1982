"""Print the state of all runs, read from their folders.

python scripts/status.py                     all tables, and what is running
python scripts/status.py --table table4      one table, row by row
python scripts/status.py --failed            failed runs and their errors
"""

import sys

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.status import status

if __name__ == "__main__":
    sys.exit(status(sys.argv[1:]))
