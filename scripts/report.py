"""Make the tables and figures from the records and the paper's numbers.

python scripts/report.py              all tables
python scripts/report.py table4       one of them
"""

import sys

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.report.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
