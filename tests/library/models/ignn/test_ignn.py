"""IGNN against the numbers of the official code; its sizes, projection and use."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from problems import golden_file

import phantomgrad as pg
from phantomgrad.models import (
    GraphClassifier,
    ImplicitGraphLayer,
    NodeClassifier,
    Propagation,
    normalized_adjacency,
    project_rows_onto_l1_ball,
)
from phantomgrad.models.ignn import IGNNCell

GOLDEN = golden_file("ignn")
SOLVER = pg.FixedPoint(max_evaluations=500, tol=1e-15, stop="absolute", norm="max")
IMPLICIT = pg.ImplicitGradient(
    solver=pg.FixedPoint(max_evaluations=500, tol=1e-15, stop="relative", norm="max")
)
# A path of four nodes; a triangle with a tail of two.
PAIRS = [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6), (4, 6), (6, 7), (7, 8)]
EDGES = torch.tensor([*PAIRS, *((j, i) for i, j in PAIRS)]).t()
NODES = 9


def filled(shape, t, amplitude, wave=math.sin):
    """The rule of the golden numbers: element n holds ``amplitude * wave(n^2 + n + t)``."""
    values = [amplitude * wave(n * n + n + t) for n in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).view(shape)


def golden_model(gradient):
    """The model of the golden numbers, its weights projected."""
    model = GraphClassifier(3, 2, SOLVER, gradient, channels=4, dropout=0.0, kappa=0.9)
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            layer.weight.copy_(filled((4, 4), 500 + 2 * i, 0.5))
            layer.omega.copy_(filled((4, layer.omega.shape[1]), 501 + 2 * i, 1.0))
        model.hidden.weight.copy_(filled((4, 4), 2, 0.5))
        model.hidden.bias.copy_(filled((4,), 3, 0.1, math.cos))
        model.output.weight.copy_(filled((2, 4), 4, 0.5))
        model.output.bias.copy_(filled((2,), 5, 0.1, math.cos))
    model.project_()
    return model


def golden_inputs(edge_weight=1.0):
    """Features, adjacency and sum pooling of the two graphs."""
    propagation = normalized_adjacency(EDGES, NODES, edge_weight=edge_weight, dtype=torch.float64)
    pooling = torch.zeros(2, NODES)
    pooling[0, :4] = pooling[1, 4:] = 1
    return filled((NODES, 3), 4, 1.0, math.cos), propagation, Propagation(pooling)


def golden_loss(model):
    return F.nll_loss(model(*golden_inputs(), propagated=False), torch.tensor([1, 0]))


def close(ours, reference, tolerance=1e-11):
    expected = torch.as_tensor(reference, dtype=torch.float64)
    torch.testing.assert_close(ours.detach(), expected, rtol=0, atol=tolerance)


def test_a_batch_of_pytorch_geometric_will_do():
    model = golden_model(IMPLICIT)
    features, propagation, pooling = golden_inputs()
    batch = torch.tensor([0] * 4 + [1] * 5)
    expected = model(features, propagation, pooling, propagated=False)
    torch.testing.assert_close(model(features, EDGES, batch), expected)


ESTIMATORS = [
    ("implicit", IMPLICIT),
    ("one_step", pg.UnrolledPhantomGradient(1, 1.0)),
    *(
        (f"upg_{damping}", kind(5, damping))
        for kind in (pg.UnrolledPhantomGradient, pg.NeumannPhantomGradient)
        for damping in (0.5, 0.8, 1.0)
    ),
]


@pytest.mark.parametrize(("name", "edge_weight"), [("training", 1.0), ("test", 2.0)])
def test_adjacency_is_the_official_one(name, edge_weight):
    expected = torch.zeros(NODES, NODES)
    for i, j, value in GOLDEN["adjacency"][name]:
        expected[int(i), int(j)] = expected[int(j), int(i)] = value
    _, propagation, _ = golden_inputs(edge_weight)
    close(propagation.to_dense(), expected)


def test_projection_is_the_official_one():
    projected = project_rows_onto_l1_ball(
        torch.tensor(GOLDEN["projection"]["before"], dtype=torch.float64), 0.9
    )
    close(projected, GOLDEN["projection"]["after"])


def test_weights_equilibria_and_output_are_the_official_ones():
    model = golden_model(IMPLICIT)
    for layer, expected in zip(model.layers, GOLDEN["weights"], strict=True):
        close(layer.weight.detach(), expected)
    seen = []
    for module in (*model.layers, model.output):
        module.register_forward_hook(lambda _m, _i, out: seen.append(out))
    scores = model(*golden_inputs(), propagated=False)
    *states, logits = seen
    for state, expected in zip(states, GOLDEN["equilibria"], strict=True):
        close(state.mT, expected)
    close(logits, GOLDEN["logits"])
    close(scores.detach(), GOLDEN["log_probabilities"])
    assert golden_loss(model).item() == pytest.approx(GOLDEN["loss"], abs=1e-11)


@pytest.mark.parametrize(("name", "gradient"), ESTIMATORS)
def test_gradients_are_the_official_ones(name, gradient):
    model = golden_model(gradient)
    golden_loss(model).backward()
    for i, layer in enumerate(model.layers):
        close(layer.weight.grad, GOLDEN["gradients"][name]["weight"][i])
        close(layer.omega.grad, GOLDEN["gradients"][name]["omega"][i])
        assert layer.unused_omega.grad is None
        assert layer.unused_bias.grad is None
    for key, expected in GOLDEN["head_gradients"].items():
        close(model.get_parameter(key).grad, expected)


def test_directed_graph_gets_the_exact_gradient():
    cell = IGNNCell(3)
    with torch.no_grad():
        cell.weight.copy_(filled((3, 3), 7, 0.35))
    injection = (filled((3, 5), 9, 1.0, math.cos) + 0.3).mT.contiguous().requires_grad_()
    cotangent = filled((3, 5), 3, 1.0, math.cos).mT
    propagation = Propagation(torch.tensor(GOLDEN["directed"]["adjacency"], dtype=torch.float64).mT)
    z, _ = pg.DEQ(cell, SOLVER, IMPLICIT, coupled=True)(
        injection, propagation, z0=torch.zeros(5, 3)
    )
    z.backward(cotangent)
    close(z.detach().mT, GOLDEN["directed"]["equilibrium"])
    close(injection.grad.mT, GOLDEN["directed"]["injection_gradient"])
    close(cell.weight.grad, GOLDEN["directed"]["weight_gradient"])


def test_models_have_the_official_sizes():
    """All parameters and those that are trained are counted, on COX2, on PROTEINS and on Chains."""
    expected = {(GraphClassifier, 35): (37_634, 27_010), (GraphClassifier, 3): (33_538, 24_962)}
    expected[NodeClassifier, 100] = (3_504, 1_888)
    for (kind, features), sizes in expected.items():
        parameters = list(kind(features, 2, SOLVER, IMPLICIT).parameters())
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        assert (sum(p.numel() for p in parameters), trained) == sizes


def test_features_may_come_propagated():
    model = golden_model(IMPLICIT)
    u, propagation, pooling = golden_inputs()
    plain = model(u, propagation, pooling, propagated=False)
    close(model(propagation(u), propagation, pooling, propagated=True), plain)


def test_equilibrium_does_not_depend_on_the_start():
    layer = golden_model(IMPLICIT).layers[0]
    u, propagation, _ = golden_inputs()
    close(layer(u, propagation, warm=True), layer(u, propagation, warm=False))


def test_graphs_of_a_batch_are_independent():
    model = golden_model(IMPLICIT)
    u, propagation, _ = golden_inputs()
    alone = Propagation(propagation.to_dense()[:4, :4])
    together = model(*golden_inputs(), propagated=False)
    close(model(u[:4], alone, Propagation(torch.ones(1, 4)), propagated=False), together[:1])


def test_node_classifier_normalises_the_equilibrium_of_each_node():
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


def test_dropout_acts_in_training_only():
    model, inputs = GraphClassifier(3, 2, SOLVER, IMPLICIT, channels=16), golden_inputs()
    for mode in (True, False):
        model.train(mode)
        first, second = (model(*inputs, propagated=False) for _ in range(2))
        assert torch.equal(first, second) != mode


@pytest.mark.parametrize("kappa", [0.3, 0.9])
def test_weights_are_well_posed_from_the_start_and_after_projection(kappa):
    model = GraphClassifier(3, 2, SOLVER, IMPLICIT, kappa=kappa)
    for _ in range(2):
        for layer in model.layers:
            assert layer.weight.abs().sum(dim=1).max() <= kappa + 1e-12
            with torch.no_grad():
                layer.weight.mul_(100)
        model.project_()


def test_a_forgotten_projection_is_pointed_out():
    layer = ImplicitGraphLayer(3, 4, SOLVER, pg.UnrolledPhantomGradient(1, 1.0))
    inputs = golden_inputs()[:2]
    layer(*inputs)
    with torch.no_grad():
        layer.weight.mul_(1.1)
    with pytest.warns(UserWarning, match="call project_.. after each optimizer step"):
        layer(*inputs)
    layer.project_()
    layer(*inputs)
    assert layer.deq.last_solution.converged.all()


@pytest.mark.parametrize("weights", [None, torch.rand(EDGES.shape[1], dtype=torch.float64)])
def test_edges_stand_for_their_normalized_adjacency(weights):
    """With weights, ``(D^-1/2 (A + I) D^-1/2)^T``, where D sums the rows of A + I."""
    a = torch.eye(NODES).index_put(tuple(EDGES), torch.ones(()) if weights is None else weights)
    scale = a.sum(dim=1).rsqrt()
    operator = Propagation((scale[:, None] * a * scale).mT)
    layer, u = ImplicitGraphLayer(3, 4, SOLVER, IMPLICIT), golden_inputs()[0]
    close(layer(u, EDGES, *[] if weights is None else [weights]), layer(u, operator).detach())


numbers = st.floats(-10, 10, allow_nan=False, allow_subnormal=False)
matrices = st.integers(1, 6).flatmap(
    lambda columns: st.lists(
        st.lists(numbers, min_size=columns, max_size=columns), min_size=1, max_size=4
    )
)
radii = st.floats(0.05, 5.0)


@given(matrices, radii)
def test_projected_rows_lie_in_the_ball_and_stay_there(rows, radius):
    w = torch.tensor(rows, dtype=torch.float64)
    projected = project_rows_onto_l1_ball(w, radius)
    assert projected.abs().sum(dim=1).max() <= radius * (1 + 1e-12)
    close(project_rows_onto_l1_ball(projected, radius), projected, 1e-13)
    inside = w.abs().sum(dim=1) <= radius
    assert torch.equal(projected[inside], w[inside])


@given(matrices, radii, st.integers(0, 2**31))
def test_no_point_of_the_ball_is_closer(rows, radius, seed):
    w = torch.tensor(rows, dtype=torch.float64)
    p = project_rows_onto_l1_ball(w, radius)
    noise = torch.randn(50, *w.shape, generator=torch.Generator().manual_seed(seed))
    inside = radius * noise / noise.abs().sum(dim=2, keepdim=True)
    corners = radius * torch.eye(w.shape[1]).unsqueeze(1)
    for q in (inside, corners, -corners):
        assert ((w - p) * (q - p)).sum(dim=2).max() <= 1e-10
