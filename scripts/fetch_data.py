"""Fetch data sets, once; training runs never download.

python scripts/fetch_data.py                         COX2 and PROTEINS, by network
python scripts/fetch_data.py MUTAG ENZYMES           any TU data sets
python scripts/fetch_data.py COX2 --from DIR         from a folder, without network
python scripts/fetch_data.py CIFAR10 WikiText103 PPI by network, or --from DIR
python scripts/fetch_data.py CIFAR10-JPEG --from DIR from DIR/cifar10-jpeg.tar.xz
python scripts/fetch_data.py ImageNet                says how to arrange it
"""

import sys
from pathlib import Path

from phantomgrad_suite.data.fetch import fetch
from phantomgrad_suite.data.graphs.fetch_tu import DEFAULT_NAMES
from phantomgrad_suite.runs.errors import UserError


def main(arguments: list[str]) -> int:
    """Fetch every named data set; return the exit code."""
    names, source = list(arguments), None
    if "--from" in names:
        at = names.index("--from")
        if at + 1 == len(names):
            print("--from needs a folder: --from DIR", file=sys.stderr)
            return 2
        source = Path(names[at + 1])
        del names[at : at + 2]
    unknown = [name for name in names if name.startswith("-")]
    if unknown:
        print(f"unknown option {unknown[0]}\n{__doc__}", file=sys.stderr)
        return 2
    failed = False
    for name in names or DEFAULT_NAMES:
        try:
            print(fetch(name, Path("data"), source))
        except UserError as error:
            print(error, file=sys.stderr)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
