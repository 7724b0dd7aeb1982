"""Graph operators: constant sparse matrices applied to node features."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from phantomgrad.precision import widest_dtype


class Propagation:
    r"""A constant sparse matrix :math:`P` that acts on node-major features, ``P X``.

    P and its transpose are stored in CSR form, so that forward and backward pass are the same fast
    product. It is differentiable with respect to X, any number of times.

    Args:
        matrix: P, ``(rows, columns)``, sparse.
        symmetric: store P only once; not checked.
    """

    def __init__(self, matrix: Tensor, *, symmetric: bool = False) -> None:
        self._matrix = _csr(matrix)
        self._transpose = self._matrix if symmetric else _csr(matrix.t())

    @property
    def shape(self) -> torch.Size:
        """The shape of P, ``(rows, columns)``."""
        return self._matrix.shape

    @property
    def mT(self) -> Propagation:
        """The transpose, sharing memory."""
        other = Propagation.__new__(Propagation)
        other._matrix, other._transpose = self._transpose, self._matrix
        return other

    def __call__(self, x: Tensor) -> Tensor:
        """Return ``P x`` for ``x`` of shape ``(columns, channels)``.

        It ignores autocast and runs in the precision of P: some devices have no other product.
        """
        x = x.to(torch.promote_types(x.dtype, self._matrix.dtype))
        with torch.autocast(x.device.type, enabled=False):
            product: Tensor = _SparseProduct.apply(x, self)
        return product

    def to(self, *args: Any, **kwargs: Any) -> Propagation:
        """Return a copy on another device or in another dtype."""
        other = Propagation.__new__(Propagation)
        other._matrix = self._matrix.to(*args, **kwargs)
        same = self._transpose is self._matrix
        other._transpose = other._matrix if same else self._transpose.to(*args, **kwargs)
        return other

    def to_dense(self) -> Tensor:
        """Return P as a dense tensor."""
        return self._matrix.to_dense()


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: Propagation) -> Tensor:
        ctx.p = p
        # mm would first fill its result with zeros, which takes a third of the time on the CPU.
        # cuSPARSE does not promise to leave the result unread where beta is 0.
        new = x.new_zeros if x.is_cuda else x.new_empty
        out = new(p.shape[0], x.shape[1])
        return torch.addmm(out, p._matrix, x, beta=0, out=out)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _SparseProduct.apply(g, ctx.p.mT), None


def _csr(matrix: Tensor) -> Tensor:
    with warnings.catch_warnings():  # torch warns at every construction
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return matrix.to_sparse_csr()


def checked_sparse(indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a sparse matrix of indices ``(2, E)``; raise if one is out of bounds."""
    # With check_invariants=True instead, torch 2.11 warns that nothing is checked.
    with torch.sparse.check_sparse_tensor_invariants():  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(indices, values, shape)


def normalized_adjacency(
    edges: Tensor,
    nodes: int,
    *,
    edge_weight: float | Tensor = 1.0,
    dtype: torch.dtype | None = None,
) -> Propagation:
    r"""Return the operator of :math:`D^{-1/2} (w A + I) D^{-1/2}` on node-major features.

    :math:`D` holds the row sums of :math:`w A + I` (Gu et al., 2020, in their graph
    classification). A node receives from the sources of its incoming edges. So for directed graphs
    the operator is the transpose of the matrix above.

    Args:
        edges: ``(2, E)``, sources and targets; undirected edges in both directions.
        nodes: number of nodes.
        edge_weight: :math:`w`, or the constant weight of each edge, ``(E,)``; the official
            evaluation of IGNN uses 2 (it adds :math:`A^T`).
        dtype: of the operator, float32 by default; it is computed in float64 (on MPS, float32).
    """
    if edges.is_floating_point() or edges.shape[:-1] != (2,):
        raise ValueError(f"edges must be integers (2, E), got {edges.dtype} {tuple(edges.shape)}")
    wide = widest_dtype(edges.device)
    weights = torch.as_tensor(edge_weight, dtype=wide, device=edges.device)
    if weights.requires_grad:
        raise ValueError("edge_weight must be a constant, got a tensor that requires a gradient")
    loops = torch.arange(nodes, device=edges.device).expand(2, -1)
    values = torch.cat([weights.expand(edges.shape[1]), weights.new_ones(nodes)])
    index = torch.cat([edges, loops], dim=1)
    degree = torch.zeros(nodes, dtype=wide, device=edges.device)
    degree.index_add_(0, index[0], values)
    if not bool(((degree > 0) & degree.isfinite()).all()):
        raise ValueError(
            "edge_weight must leave every node a positive, finite degree, its row sum of w A + I, "
            f"got degrees from {float(degree.min()):g} to {float(degree.max()):g}"
        )
    scale = degree.rsqrt()
    values = scale[index[0]] * scale[index[1]] * values  # to the same bits in both directions
    matrix = checked_sparse(index.flip(0), values, (nodes, nodes)).coalesce()
    return _operator(matrix, dtype)


def adjacency(edges: Tensor, nodes: int, *, dtype: torch.dtype | None = None) -> Propagation:
    """Return the operator of the plain adjacency matrix: a node sums over its incoming edges."""
    values = torch.ones(edges.shape[1], dtype=widest_dtype(edges.device), device=edges.device)
    matrix = checked_sparse(edges.flip(0), values, (nodes, nodes))
    return _operator(matrix.coalesce(), dtype)


def node_sums(graph: Tensor, *, dtype: torch.dtype | None = None) -> Propagation:
    """Return the operator that sums the nodes of each graph, given the graph of each, ``(N,)``."""
    if graph.is_floating_point() or graph.dim() != 1 or not len(graph):
        got = f"{graph.dtype} {tuple(graph.shape)}"
        raise ValueError(f"the graph of each node must be integers (N,), got {got}")
    nodes = torch.arange(len(graph), device=graph.device)
    values = torch.ones(len(graph), dtype=dtype, device=graph.device)
    shape = (int(graph.max()) + 1, len(graph))
    return Propagation(checked_sparse(torch.stack([graph, nodes]), values, shape))


def _operator(matrix: Tensor, dtype: torch.dtype | None) -> Propagation:
    transpose = matrix.t().coalesce()
    symmetric = torch.equal(matrix.indices(), transpose.indices()) and torch.equal(
        matrix.values(), transpose.values()
    )
    return Propagation(matrix.to(dtype or torch.float32), symmetric=symmetric)
