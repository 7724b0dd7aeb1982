"""IGNN for PPI: the authors' sizes, its stages in plain torch, one bound on W for all graphs."""

import pytest
import torch
import torch.nn.functional as F

from phantomgrad import FixedPoint, ImplicitGradient
from phantomgrad.models import MultilabelNodeClassifier, Propagation, adjacency

SOLVER = FixedPoint(max_evaluations=500, tol=1e-14, norm="max")
IMPLICIT = ImplicitGradient(solver=SOLVER)
NODES, RADIUS = 7, 3.0


def small(**options):
    return MultilabelNodeClassifier(3, 4, RADIUS, SOLVER, IMPLICIT, channels=(6, 5), **options)


def ring_with_chord():
    """The edges of a ring of seven nodes with a chord, in both directions."""
    ring = torch.arange(NODES)
    sources, targets = torch.cat([ring, torch.tensor([0])]), torch.cat([ring.roll(1), ring[3:4]])
    return torch.stack([torch.cat([sources, targets]), torch.cat([targets, sources])])


@pytest.fixture
def graph():
    """Features, and the plain adjacency."""
    return torch.randn(NODES, 3), adjacency(ring_with_chord(), NODES, dtype=torch.float64)


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_model_has_the_authors_size_part_by_part():
    model = MultilabelNodeClassifier(50, 121, 50.0, SOLVER, IMPLICIT)
    assert [count(m) for m in model.layers] == [1_152_000, 1_311_232, 786_944, 327_936, 76_714]
    assert [count(m) for m in model.linears] == [52_224, 524_800, 262_656, 131_328, 31_097]
    assert count(model) == 4_656_931
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 3_654_826
    assert [tuple(m.weight.shape) for m in model.layers] == [
        (width, width) for width in (1024, 512, 512, 256, 121)
    ]


def plain_torch(model, u, a, steps=500):
    for i, (layer, linear) in enumerate(zip(model.layers, model.linears, strict=True)):
        b = a @ u @ layer.omega.mT
        x = b
        for _ in range(steps):
            x = F.relu(a @ x @ layer.weight.mT + b)
        u = x + u @ linear.weight.mT + linear.bias
        u = u if i == len(model.layers) - 1 else torch.where(u > 0, u, u.exp() - 1)
    return u


def test_values_and_gradients_are_those_in_plain_torch(graph):
    model, (u, propagation) = small(), graph
    ours, expected = model(u, propagation), plain_torch(model, u, propagation.to_dense())
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-11)
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = (torch.autograd.grad(y.square().sum(), parameters) for y in (ours, expected))
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-9)


def test_edges_stand_for_their_plain_adjacency(graph):
    model, (u, propagation) = small(), graph
    assert torch.equal(model(u, ring_with_chord()), model(u, propagation))


@pytest.mark.parametrize("kappa", [0.5, 0.98])
def test_rows_stay_in_the_ball_of_the_training_graphs(kappa):
    model = small(kappa=kappa)
    for _ in range(2):
        for layer in model.layers:
            norms = layer.weight.detach().abs().sum(dim=1)
            assert norms.max() == pytest.approx(kappa / RADIUS, abs=1e-12)
            assert layer.bound == kappa / RADIUS
            with torch.no_grad():
                layer.weight.mul_(100)
        model.project_()


def test_evaluation_changes_no_state():
    model = small().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    complete = Propagation(torch.ones(NODES, NODES) - torch.eye(NODES))  # radius 6
    with torch.no_grad():
        model(torch.randn(NODES, 3), complete)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
