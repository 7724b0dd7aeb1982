"""The sparse operator against dense linear algebra."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phantomgrad.models import Propagation, adjacency, normalized_adjacency


@pytest.fixture
def dense():
    """A matrix with zeros, one of its rows empty."""
    matrix = torch.randn(5, 4)
    matrix[matrix.abs() < 0.5] = 0
    matrix[1] = 0
    return matrix


@pytest.mark.parametrize("layout", ["dense", "coo", "csr"])
def test_product_is_the_dense_one(dense, layout):
    layouts = {"dense": dense, "coo": dense.to_sparse_coo(), "csr": Propagation(dense)._matrix}
    p, x = Propagation(layouts[layout]), torch.randn(4, 3)
    assert p.shape == (5, 4)
    torch.testing.assert_close(p(x), dense @ x)
    torch.testing.assert_close(p.to_dense(), dense)


def test_transpose_shares_its_memory(dense):
    p, x = Propagation(dense), torch.randn(5, 3)
    torch.testing.assert_close(p.mT(x), dense.mT @ x)
    assert p.mT.shape == (4, 5)
    assert p.mT.mT._matrix is p._matrix


def test_derivatives_of_both_orders(dense):
    p, x = Propagation(dense), torch.randn(4, 2, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: p(x).pow(3), x)
    assert torch.autograd.gradgradcheck(lambda x: p(x).pow(3), x)


def test_symmetric_matrix_is_stored_once():
    matrix = torch.randn(4, 4)
    matrix = matrix + matrix.mT
    p, x = Propagation(matrix, symmetric=True), torch.randn(4, 2, requires_grad=True)
    assert p._transpose is p._matrix
    (ours,) = torch.autograd.grad(p(x).sum(), x)
    torch.testing.assert_close(ours, matrix @ torch.ones(4, 2))
    moved = p.to(torch.float32)
    assert moved._transpose is moved._matrix
    assert moved.mT(torch.randn(4, 2, dtype=torch.float32)).dtype == torch.float32


def reference(edges, nodes, weight):
    """``(D^-1/2 (w A + I) D^-1/2)^T``, in plain torch."""
    a = torch.eye(nodes)
    for source, target in edges.t().tolist():
        a[source, target] += weight
    scale = a.sum(dim=1).rsqrt()
    return (scale[:, None] * a * scale).mT


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(
            st.just(n), st.sets(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=9)
        )
    ),
    st.sampled_from([1.0, 2.0, 0.3]),
)
def test_adjacency_is_its_definition(graph, weight):
    nodes, pairs = graph
    edges = torch.tensor(sorted(pairs), dtype=torch.long).reshape(-1, 2).t()
    ours = normalized_adjacency(edges, nodes, edge_weight=weight, dtype=torch.float64)
    torch.testing.assert_close(ours.to_dense(), reference(edges, nodes, weight))


def test_undirected_graph_is_stored_once_with_spectral_radius_one():
    """Whatever its weights; rounding must not depend on the direction of an edge."""
    pairs = torch.tensor([[0, 1, 1, 2, 2, 0, 1, 3], [1, 0, 2, 1, 0, 2, 3, 1]])
    for weight in (1.0, 2.0, 0.3, 0.7, torch.tensor([0.3, 0.7, 0.1, 1.9]).repeat_interleave(2)):
        p = normalized_adjacency(pairs, 5, edge_weight=weight, dtype=torch.float64)
        assert p._transpose is p._matrix
        eigenvalues = torch.linalg.eigvalsh(p.to_dense())
        torch.testing.assert_close(eigenvalues.abs().max(), torch.tensor(1.0))


def test_plain_adjacency_sums_over_incoming_edges():
    edges = torch.tensor([[0, 1, 0], [1, 2, 2]])
    expected = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 1, 0]])
    directed = adjacency(edges, 3, dtype=torch.float64)
    assert torch.equal(directed.to_dense(), expected)
    assert torch.equal(directed.mT.to_dense(), expected.mT)
    both = adjacency(torch.cat([edges, edges.flip(0)], dim=1), 3, dtype=torch.float64)
    assert torch.equal(both.to_dense(), expected + expected.mT)
    assert both._matrix is both._transpose
