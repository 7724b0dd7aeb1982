"""Copy your records to those that the repository publishes, and make their tables and page.

python scripts/publish.py             from runs/results to results
python scripts/publish.py DIR         from another folder, as report.py takes it with yours=DIR
"""

import sys
from pathlib import Path

from phantomgrad_suite.publish import publish
from phantomgrad_suite.report.command import main
from phantomgrad_suite.runs.errors import UserError

if __name__ == "__main__":
    results = Path(__file__).resolve().parents[1] / "results"
    try:
        print("\n".join(publish(Path((sys.argv[1:] or ["runs/results"])[0]), results)))
    except (UserError, OSError) as error:
        sys.exit(str(error))
    sys.exit(main([], results))
