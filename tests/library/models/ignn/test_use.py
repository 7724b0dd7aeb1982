"""IGNN in use: batches of graphs, nodes, dropout, misuse."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from ignn_golden import IMPLICIT, NODES, SOLVER, close, golden_inputs, golden_model

from phantomgrad.models import GraphClassifier, ImplicitGraphLayer, NodeClassifier, Propagation


def test_features_may_come_propagated() -> None:
    model = golden_model(IMPLICIT)
    u, propagation, pooling = golden_inputs()
    plain = model(u, propagation, pooling, propagated=False)
    close(model(propagation(u), propagation, pooling, propagated=True), plain)


def test_equilibrium_does_not_depend_on_the_start() -> None:
    layer = golden_model(IMPLICIT).layers[0]
    u, propagation, _ = golden_inputs()
    close(layer(u, propagation, warm=True), layer(u, propagation, warm=False))


def test_graphs_of_a_batch_do_not_see_each_other() -> None:
    model = golden_model(IMPLICIT)
    u, propagation, _ = golden_inputs()
    alone = Propagation(propagation.to_dense()[:4, :4])
    together = model(*golden_inputs(), propagated=False)
    close(model(u[:4], alone, Propagation(torch.ones(1, 4)), propagated=False), together[:1])


def test_node_classifier_normalises_the_equilibrium_of_each_node() -> None:
    model = NodeClassifier(3, 2, SOLVER, IMPLICIT, channels=4).eval()
    u, propagation, _ = golden_inputs()
    p, w = propagation.to_dense(), model.layer.weight
    x = torch.zeros(NODES, 4)
    for _ in range(300):
        x = F.relu(p @ x @ w.mT + p @ u @ model.layer.omega.mT)
    x = x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(1e-12)
    logits = x @ model.output.weight.mT
    expected = logits - logits.exp().sum(dim=1, keepdim=True).log()
    close(model(u, propagation), expected)
    assert model.output.bias is None


def test_dropout_acts_in_training_alone() -> None:
    model = GraphClassifier(3, 2, SOLVER, IMPLICIT, channels=16)
    u, propagation, pooling = golden_inputs()
    first, second = (model(u, propagation, pooling, propagated=False) for _ in range(2))
    assert not torch.equal(first, second)
    model.eval()
    first, second = (model(u, propagation, pooling, propagated=False) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("kappa", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_kappa_outside_its_range_is_refused(kappa: float) -> None:
    with pytest.raises(ValueError, match=r"kappa must lie in \(0, 1\), got"):
        ImplicitGraphLayer(3, 4, SOLVER, IMPLICIT, kappa)


def test_dropout_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        GraphClassifier(3, 2, SOLVER, IMPLICIT, dropout=1.0)
