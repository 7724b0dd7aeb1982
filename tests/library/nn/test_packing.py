"""Several tensors as one state."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from phantomgrad.nn import Packing

shapes = st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=4)


@given(shapes=shapes, batch=st.integers(0, 3))
def test_unpacking_inverts_packing(shapes: list[list[int]], batch: int) -> None:
    tensors = [torch.randn(batch, *shape) for shape in shapes]
    packing = Packing.of(tensors)
    packed = packing.pack(tensors)
    assert packed.shape == (batch, sum(torch.Size(shape).numel() for shape in shapes))
    for original, back in zip(tensors, packing.unpack(packed), strict=True):
        assert torch.equal(original, back)


def test_unpacked_states_are_views() -> None:
    packed = torch.zeros(2, 10)
    for piece in Packing.of([torch.zeros(2, 4), torch.zeros(2, 2, 3)]).unpack(packed):
        assert piece.untyped_storage().data_ptr() == packed.untyped_storage().data_ptr()


def test_gradients_pass_through() -> None:
    tensors = [torch.randn(2, 3, requires_grad=True), torch.randn(2, 2, 2, requires_grad=True)]
    packing = Packing.of(tensors)
    a, b = packing.unpack(packing.pack(tensors))
    grads = torch.autograd.grad(a.sum() + 2 * b.sum(), tensors)
    assert torch.equal(grads[0], torch.ones(2, 3))
    assert torch.equal(grads[1], torch.full((2, 2, 2), 2.0))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([], "needs at least one tensor, got none"),
        ([torch.tensor(1.0)], "must have a batch dimension"),
        ([torch.zeros(2, 3), torch.zeros(4, 3)], r"must share their batch, got \[2, 4\]"),
    ],
)
def test_states_that_cannot_be_packed_are_refused(tensors: list[Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Packing.of(tensors)


@pytest.mark.parametrize(
    "other", [[torch.zeros(2, 3)], [torch.zeros(2, 3), torch.zeros(2, 5)], [torch.zeros(2, 2)] * 2]
)
def test_a_map_that_changes_the_shapes_is_named(other: list[Tensor]) -> None:
    packing = Packing.of([torch.zeros(2, 3), torch.zeros(2, 4)])
    with pytest.raises(ValueError, match=r"it maps \[\(3,\), \(4,\)\] to"):
        packing.pack(other)
