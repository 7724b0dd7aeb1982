"""Put the finished runs of a table on wandb, rebuilt from their records.

python scripts/export_wandb.py table4             as files in runs/.wandb, for `wandb sync`
python scripts/export_wandb.py table4 --online    sent at once, with a report of the table
"""

import sys
from pathlib import Path

from phantomgrad_suite.export_wandb import main
from phantomgrad_suite.runs.errors import UserError

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[1] / "configs"))
    except UserError as error:
        sys.exit(str(error))
