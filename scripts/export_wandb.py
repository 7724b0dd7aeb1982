"""Put the finished runs of a table on wandb, rebuilt from their records.

python scripts/export_wandb.py table4             as files in runs/.wandb, for `wandb sync`
python scripts/export_wandb.py table4 --online    sent at once, with a report of the table
"""

import sys

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.export_wandb import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
