"""Fetch data sets, once; training runs never download.

python scripts/fetch_data.py MUTAG ENZYMES           any TU data sets
python scripts/fetch_data.py MUTAG --from DIR        from a folder that is laid out like data/
python scripts/fetch_data.py CIFAR10 WikiText103 PPI by network, or --from DIR
python scripts/fetch_data.py ImageNet                how to arrange its images
"""

import argparse
import sys
from pathlib import Path

from phantomgrad_suite.brief_errors import brief_errors

brief_errors()

from phantomgrad_suite.data.fetch import fetch
from phantomgrad_suite.runs.errors import UserError


def main(arguments: list[str]) -> int:
    """Fetch every named data set; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    failed = False
    for name in options.names:
        try:
            print(fetch(name, Path("data"), options.source))
        except UserError as error:
            print(error, file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
