"""Fixtures of the experiment half: small graph data sets, single precision, real data."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[2]
PPI_SCALE = 0.005  # 12 to 17 nodes a graph


@pytest.fixture
def float32(_float64: None) -> Iterator[None]:
    """The default precision of training runs, in place of the tests' float64."""
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float64)


@pytest.fixture
def small_tu(_small_tu: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with two small data sets in TU's format, under the names of the real ones."""
    monkeypatch.setattr("phantomgrad_suite.data.graphs.tu.EMBEDDED", ())
    return _small_tu


@pytest.fixture(scope="session")
def _small_tu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("TUDataset")
    write_tu_dataset(root, "COX2", graphs=40, seed=1)
    write_tu_dataset(root, "PROTEINS", graphs=50, seed=2)
    return root


@pytest.fixture
def small_ppi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets PPI have as few nodes as small synthetic graphs."""
    from phantomgrad_suite.data.graphs import ppi_synthetic

    monkeypatch.setattr(ppi_synthetic, "NODES", ppi_synthetic.scaled(PPI_SCALE))


def write_tu_dataset(
    root: Path, name: str, *, graphs: int, seed: int, node_labels: bool = True
) -> Path:
    """Write connected random graphs of 4 to 9 nodes, two classes, four kinds of node.

    The format is that of TU's raw files: 1-based ids, one line per directed edge, labels -1 and 1.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 10, size=graphs)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    edges: list[tuple[int, int]] = []
    for start, size in zip(first.tolist(), sizes.tolist(), strict=True):
        tree = {(start + int(rng.integers(0, i)), start + i) for i in range(1, size)}
        edges += sorted({*tree, *((j, i) for i, j in tree)})
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    lines = {
        "A": [f"{i + 1}, {j + 1}" for i, j in edges],
        "graph_indicator": [str(g + 1) for g, size in enumerate(sizes) for _ in range(size)],
        "graph_labels": [str(2 * int(label) - 1) for label in rng.random(graphs) < 0.3],
    }
    if node_labels:
        # Every kind occurs, so that the width of the features does not depend on the seed.
        kinds = rng.permutation(np.arange(sizes.sum()) % 4)
        lines["node_labels"] = [str(kind) for kind in kinds]
    for part, content in lines.items():
        (raw / f"{name}_{part}.txt").write_text("\n".join(content) + "\n")
    return raw
