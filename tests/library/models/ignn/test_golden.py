"""IGNN against the numbers of the official code, and its sizes."""

from __future__ import annotations

import math

import pytest
import torch
from ignn_golden import (
    GOLDEN,
    IMPLICIT,
    NODES,
    SOLVER,
    close,
    filled,
    golden,
    golden_inputs,
    golden_loss,
    golden_model,
)
from torch import Tensor

from phantomgrad import DEQ, GradientEstimator, NeumannPhantomGradient, UnrolledPhantomGradient
from phantomgrad.models import (
    GraphClassifier,
    NodeClassifier,
    Propagation,
    project_rows_onto_l1_ball,
)
from phantomgrad.models.ignn import IGNNCell

ESTIMATORS: dict[str, GradientEstimator] = {
    "implicit": IMPLICIT,
    "upg_0.5": UnrolledPhantomGradient(5, 0.5),
    "upg_0.8": UnrolledPhantomGradient(5, 0.8),
    "upg_1.0": UnrolledPhantomGradient(5, 1.0),
    "one_step": UnrolledPhantomGradient(1, 1.0),
}


# --- The official numbers --------------------------------------------------------------------


@pytest.mark.parametrize(("name", "edge_weight"), [("training", 1.0), ("test", 2.0)])
def test_adjacency_is_the_official_one(name: str, edge_weight: float) -> None:
    expected = torch.zeros(NODES, NODES)
    for i, j, value in GOLDEN["adjacency"][name]:
        expected[int(i), int(j)] = expected[int(j), int(i)] = value
    _, propagation, _ = golden_inputs(edge_weight)
    close(propagation.to_dense(), expected)


def test_projection_is_the_official_one() -> None:
    projected = project_rows_onto_l1_ball(golden("projection", "before"), 0.9)
    close(projected, golden("projection", "after"))


def test_layers_project_their_weights_as_the_official_ones() -> None:
    for layer, expected in zip(golden_model(IMPLICIT).layers, GOLDEN["weights"], strict=True):
        close(layer.weight.detach(), torch.tensor(expected))


def test_equilibria_and_output_are_the_official_ones() -> None:
    model = golden_model(IMPLICIT)
    states: list[Tensor] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda _m, _i, out: states.append(out.detach()))
    logits: list[Tensor] = []
    model.output.register_forward_hook(lambda _m, _i, out: logits.append(out.detach()))
    scores = model(*golden_inputs(), propagated=False)
    for state, expected in zip(states, GOLDEN["equilibria"], strict=True):
        close(state.mT, torch.tensor(expected))
    close(logits[0], golden("logits"))
    close(scores.detach(), golden("log_probabilities"))
    assert golden_loss(model).item() == pytest.approx(GOLDEN["loss"], abs=1e-11)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_gradients_are_the_official_ones(name: str) -> None:
    model = golden_model(ESTIMATORS[name])
    golden_loss(model).backward()
    for i, layer in enumerate(model.layers):
        close(layer.weight.grad, golden("gradients", name, "weight", i))
        close(layer.omega.grad, golden("gradients", name, "omega", i))
    for key, expected in GOLDEN["head_gradients"].items():
        close(model.get_parameter(key).grad, torch.tensor(expected))


@pytest.mark.parametrize("damping", [0.5, 0.8, 1.0])
def test_neumann_gradient_is_the_unrolled_one_at_convergence(damping: float) -> None:
    model = golden_model(NeumannPhantomGradient(5, damping))
    golden_loss(model).backward()
    for i, layer in enumerate(model.layers):
        close(layer.weight.grad, golden("gradients", f"upg_{damping}", "weight", i))
        close(layer.omega.grad, golden("gradients", f"upg_{damping}", "omega", i))


def test_parameters_outside_the_equation_get_no_gradient() -> None:
    model = golden_model(IMPLICIT)
    golden_loss(model).backward()
    for layer in model.layers:
        assert layer.unused_omega.grad is None
        assert layer.unused_bias.grad is None


def test_directed_graph_gets_the_exact_gradient() -> None:
    cell = IGNNCell(3)
    with torch.no_grad():
        cell.weight.copy_(filled((3, 3), 7, 0.35))
    injection = (filled((3, 5), 9, 1.0, math.cos) + 0.3).mT.contiguous().requires_grad_()
    cotangent = filled((3, 5), 3, 1.0, math.cos).mT
    propagation = Propagation(golden("directed", "adjacency").mT)
    z, _ = DEQ(cell, SOLVER, IMPLICIT)(injection, propagation, z0=torch.zeros(1, 5, 3))
    z.squeeze(0).backward(cotangent)
    close(z.detach().squeeze(0).mT, golden("directed", "equilibrium"))
    close(injection.grad.mT, golden("directed", "injection_gradient"))
    close(cell.weight.grad, golden("directed", "weight_gradient"))


# --- Sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_channels", "total", "trainable"),
    [pytest.param(35, 37_634, 27_010, id="COX2"), pytest.param(3, 33_538, 24_962, id="PROTEINS")],
)
def test_graph_classifier_has_the_papers_size(in_channels: int, total: int, trainable: int) -> None:
    model = GraphClassifier(in_channels, 2, SOLVER, IMPLICIT)
    assert sum(p.numel() for p in model.parameters()) == total
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == trainable


def test_node_classifier_has_the_official_size() -> None:
    model = NodeClassifier(100, 2, SOLVER, IMPLICIT)
    assert sum(p.numel() for p in model.parameters()) == 3_504
