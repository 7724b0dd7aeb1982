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

from phantomgrad.data.graphs.fetch_ppi import fetch_ppi
from phantomgrad.data.graphs.fetch_tu import DEFAULT_NAMES, fetch_tu_dataset
from phantomgrad.data.images.fetch import fetch_cifar10, fetch_cifar10_jpeg, find_imagenet
from phantomgrad.data.text.fetch import fetch_wikitext103
from phantomgrad.errors import UserError

FETCH = {
    "CIFAR10": fetch_cifar10,
    "CIFAR10-JPEG": fetch_cifar10_jpeg,
    "ImageNet": find_imagenet,
    "WikiText103": fetch_wikitext103,
    "WikiText103-valid": fetch_wikitext103,
    "PPI": fetch_ppi,
}
"""Any other name is of a TU data set."""


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


def fetch(name: str, target: Path, source: Path | None) -> str:
    """Fetch one data set, by its name or that of its ``configs/dataset``; say what was done."""
    wanted = _plain(name)
    for known, fetch_it in FETCH.items():
        if _plain(known) == wanted:
            return fetch_it(target, source)
    return fetch_tu_dataset(name, target, source)


def _plain(name: str) -> str:
    return name.casefold().replace("-", "").replace("_", "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
