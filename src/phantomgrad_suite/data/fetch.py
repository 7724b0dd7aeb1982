"""Every data set that can be fetched, by name."""

from __future__ import annotations

from pathlib import Path

from phantomgrad_suite.data.graphs.fetch_ppi import fetch_ppi
from phantomgrad_suite.data.graphs.fetch_tu import fetch_tu_dataset
from phantomgrad_suite.data.images.fetch import fetch_cifar10, fetch_cifar10_jpeg, find_imagenet
from phantomgrad_suite.data.text.fetch import fetch_wikitext103

_FETCH = {
    "cifar10": fetch_cifar10,
    "cifar10jpeg": fetch_cifar10_jpeg,
    "imagenet": find_imagenet,
    "wikitext103": fetch_wikitext103,
    "wikitext103valid": fetch_wikitext103,
    "ppi": fetch_ppi,
}


def fetch(name: str, target: Path, source: Path | None) -> str:
    """Fetch one data set; say what was done.

    Args:
        name: as it is written, or as the file in ``configs/dataset``; any other name is of a TU
            data set.
        target: the folder of all data (``paths.data``).
        source: a folder to take it from; without one, the network.

    Raises:
        UserError: it cannot be fetched.
    """
    plain = name.casefold().replace("-", "").replace("_", "")
    if plain in _FETCH:
        return _FETCH[plain](target, source)
    return fetch_tu_dataset(name, target, source)
