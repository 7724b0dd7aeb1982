"""Say how far the tables are, from the files of their runs.

python scripts/status.py                     all tables, and what is running
python scripts/status.py --table table4      one table, row by row
python scripts/status.py --failed            what has failed, and by what
"""

import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]

# The package, imported in the usual way, brings torch along: seconds for a look at some files.
package = ModuleType("phantomgrad")
package.__path__ = [str(ROOT / "src" / "phantomgrad")]
sys.modules.setdefault("phantomgrad", package)

from phantomgrad.status import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], ROOT / "configs"))
