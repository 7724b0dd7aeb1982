"""Graph data sets: batches against dense algebra, and the official run's first losses."""

import pytest
import torch
import torch.nn.functional as F
from graph_data import write_tu_dataset

from phantomgrad import FixedPoint, ImplicitGradient
from phantomgrad.models import GraphClassifier
from phantomgrad_suite.data import GraphFolds
from phantomgrad_suite.data.graphs.tu import collate, load_tu_dataset
from phantomgrad_suite.runs.errors import UserError

pytestmark = pytest.mark.usefixtures("float32")


def dense_adjacency(graph, weight):
    a = torch.eye(len(graph.features))
    a[tuple(graph.edges)] += weight
    scale = a.sum(dim=1).rsqrt()
    return scale[:, None] * a * scale


@pytest.mark.parametrize("weight", [1.0, 2.0])
def test_batch_is_its_graphs_side_by_side(small_tu, weight):
    graphs = [load_tu_dataset("COX2", small_tu)[0][i] for i in (3, 0, 7)]
    batch = collate(graphs, weight)
    p = torch.block_diag(*(dense_adjacency(graph, weight) for graph in graphs))
    torch.testing.assert_close(batch.propagation.to_dense(), p)
    torch.testing.assert_close(batch.features, p @ torch.cat([g.features for g in graphs]))
    assert torch.equal(batch.labels, torch.cat([g.labels for g in graphs]))
    sizes = torch.tensor([len(g.features) for g in graphs])
    x = torch.rand(int(sizes.sum()), 3)
    sums = torch.stack([part.sum(dim=0) for part in x.split(sizes.tolist())])
    torch.testing.assert_close(batch.pooling(x), sums)


def test_degree_stands_in_for_missing_features(tmp_path):
    write_tu_dataset(tmp_path, "PLAIN", graphs=20, seed=0, node_labels=False)
    data = GraphFolds(name="PLAIN", root=str(tmp_path), folds=2)
    data.setup()
    batch = next(iter(data.train_dataloader()))
    index = int(data._split.train[0])
    graph = load_tu_dataset("PLAIN", tmp_path)[0][index]
    nodes = len(graph.features)
    degree = torch.zeros(nodes).index_add(0, graph.edges[1], torch.ones(graph.edges.shape[1]))
    expected = dense_adjacency(graph, 1.0) @ degree.unsqueeze(1)
    torch.testing.assert_close(batch.features[:nodes], expected)


@pytest.mark.parametrize(
    ("node_labels", "attributes", "width", "features"),
    [
        (True, None, 4, "4 node labels"),
        (True, True, 7, "3 node attributes, 4 node labels"),
        (False, None, 3, "3 node attributes"),
        (False, False, 0, "node degree"),
    ],
)
def test_attributes_are_features_where_nodes_have_no_labels(
    tmp_path, node_labels, attributes, width, features
):
    raw = write_tu_dataset(tmp_path, "TOY", graphs=20, seed=0, node_labels=node_labels)
    nodes = len((raw / "TOY_graph_indicator.txt").read_text().split())
    values = torch.randn(nodes, 3)
    rows = [", ".join(map(str, row)) for row in values.tolist()]
    (raw / "TOY_node_attributes.txt").write_text("\n".join(rows) + "\n")
    data = GraphFolds(name="TOY", root=str(tmp_path), folds=2, attributes=attributes)
    assert data.facts()["features"] == features
    assert data.in_channels == max(width, 1)
    found = torch.cat([graph.features for graph in data.graphs])
    assert found.shape == (nodes, width)
    if width % 4:
        torch.testing.assert_close(found[:, :3], values)


def test_files_may_lie_as_in_the_official_archive(tmp_path):
    raw = write_tu_dataset(tmp_path, "TOY", graphs=20, seed=0)
    facts = GraphFolds(name="TOY", root=str(tmp_path), folds=2).facts()
    for path in raw.iterdir():
        path.rename(tmp_path / "TOY" / path.name)
    raw.rmdir()
    assert GraphFolds(name="TOY", root=str(tmp_path), folds=2).facts() == facts


def test_error_of_a_damaged_file_is_one_line(tmp_path):
    raw = write_tu_dataset(tmp_path, "ONE", graphs=12, seed=0)
    (raw / "ONE_A.txt").write_bytes(b"no number\n")
    command = r"fetch it with `python scripts/fetch_data\.py ONE`"
    with pytest.raises(UserError, match=rf"/ONE/raw .*: {command}") as error:
        load_tu_dataset("ONE", tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("part", "lines", "message"),
    [
        ("graph_labels", "1\n" * 12, "the graphs of ONE have one class only: only classification"),
        ("graph_labels", "1, 0\n0, 1\n" * 6, "the graphs of ONE have several targets: only"),
        ("graph_attributes", "0.5\n1.5\n" * 6, "the graphs of ONE have real-valued targets: only"),
    ],
)
def test_other_tasks_than_classification_are_refused(tmp_path, part, lines, message):
    raw = write_tu_dataset(tmp_path, "ONE", graphs=12, seed=0)
    (raw / f"ONE_{part}.txt").write_text(lines)
    with pytest.raises(UserError, match=message):
        load_tu_dataset("ONE", tmp_path)


def test_first_epochs_of_the_official_run():
    """COX2, fold 0: the losses that the official script prints, digit by digit.

    Random numbers are drawn in its order: seed, order of the data, model, and one number for each
    pass over a loader (training; then accuracy on training and test data) in addition to dropout.
    """
    data = GraphFolds(name="COX2", root="nowhere", fold=0)
    data.setup()
    torch.manual_seed(42)
    torch.randperm(467)
    solver = FixedPoint(max_evaluations=300, tol=3e-6, stop="absolute", norm="max")
    adjoint = FixedPoint(max_evaluations=300, tol=1e-7, stop="relative", norm="max")
    model = GraphClassifier(data.in_channels, 2, solver, ImplicitGradient(solver=adjoint))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    losses = []
    for _ in range(3):
        draw(1)
        total = 0.0
        for batch in data.train_dataloader():
            optimizer.zero_grad()
            scores = model(batch.features, batch.propagation, batch.pooling, propagated=True)
            loss = F.nll_loss(scores, batch.labels)
            loss.backward()
            optimizer.step()
            model.project_()
            total += loss.item() * len(batch.labels)
        losses.append(total / data.facts()["train"])
        draw(2)
    assert losses == pytest.approx([0.6442109, 0.5461012, 0.5543454], abs=2e-5)


def draw(times):
    """Draw as a pass over a data loader does."""
    for _ in range(times):
        torch.empty((), dtype=torch.int64).random_()
