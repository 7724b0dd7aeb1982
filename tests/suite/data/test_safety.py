"""Data folders hold data: no file of theirs executes code."""

import pickle
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from graph_data import write_tu_dataset
from image_data import write_cifar10
from text_data import write_texts

from phantomgrad_suite.data import PPI, Cifar10, GraphFolds, WikiText103
from phantomgrad_suite.data.graphs.ppi import write_ppi
from phantomgrad_suite.runs.errors import UserError

LOADS = {
    "TUDataset": lambda root: GraphFolds(name="TOY", root=f"{root}/TUDataset", folds=2),
    "ppi": lambda root: PPI(root=root),
    "cifar-10-batches-py": lambda root: Cifar10(root=root).pixels,
    "wikitext-103": lambda root: WikiText103(root=root).corpus,
}


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self._mark = mark

    def __reduce__(self):
        return Path.touch, (self._mark,)


@pytest.mark.parametrize(
    "file",
    [
        "TUDataset/TOY/processed/pre_transform.pt",
        "TUDataset/TOY/processed/data.pt",
        "ppi/processed/train.pt",
        "ppi/raw/test_feats.npy",
        "cifar-10-batches-py/test_batch",
        "wikitext-103/wikitext103.pt",
    ],
)
def test_no_file_executes_code(tmp_path, small_ppi, monkeypatch, file):
    write_tu_dataset(tmp_path / "TUDataset", "TOY", graphs=40, seed=1)
    write_ppi(tmp_path / "ppi" / "raw")
    write_cifar10(tmp_path, monkeypatch)
    write_texts(tmp_path / "wikitext-103")
    mark, path = tmp_path / "executed", tmp_path / file
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, np.array([Bomb(mark)], dtype=object), allow_pickle=True)
    elif path.suffix:
        torch.save(Bomb(mark), path)
    else:
        path.write_bytes(pickle.dumps(Bomb(mark)))
    # Files that another version or another library left are not read at all, or made again.
    ignored = "processed" in file or file.endswith("wikitext103.pt")
    with nullcontext() if ignored else pytest.raises(UserError):
        LOADS[path.relative_to(tmp_path).parts[0]](str(tmp_path))
    assert not mark.exists()
