"""Packing of several tensors, including channels-last images, to one state."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phantomgrad.packing import Packing

shapes = st.lists(st.lists(st.integers(1, 4), max_size=3), min_size=1, max_size=4)


@given(shapes=shapes, batch=st.integers(0, 3))
def test_unpacking_inverts_packing(shapes, batch):
    tensors = [torch.randn(batch, *shape) for shape in shapes]
    packing = Packing.of(tensors)
    packed = packing.pack(tensors)
    assert packed.shape == (batch, sum(torch.Size(shape).numel() for shape in shapes))
    for original, back in zip(tensors, packing.unpack(packed), strict=True):
        assert torch.equal(original, back)


def image(*shape):
    return torch.randn(shape).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_images_are_packed_in_their_memory_order(batch):
    tensors = [image(batch, 2, 3, 4), torch.randn(batch, 5), image(batch, 4, 2, 2)]
    packing = Packing.of(tensors)
    packed = packing.pack(tensors)
    if batch:
        order = [t.permute(0, 2, 3, 1) if t.dim() == 4 else t for t in tensors]
        assert torch.equal(packed, torch.cat([t.flatten(1) for t in order], dim=1))
    back = packing.unpack(packed)
    for original, piece in zip(tensors, back, strict=True):
        assert torch.equal(original, piece)
        assert piece.untyped_storage().data_ptr() == packed.untyped_storage().data_ptr()
    for piece in back if batch else []:
        assert piece.stride(1) == 1 or piece.dim() == 2


def test_the_memory_format_of_the_start_holds_for_all_states():
    z = image(2, 2, 3, 4)
    packing = Packing.of([z])
    assert torch.equal(packing.pack([z.contiguous()]), packing.pack([z]))
    plain = Packing.of([z.contiguous()])
    assert torch.equal(plain.pack([z]), z.flatten(1))
    assert plain.unpack(plain.pack([z]))[0].is_contiguous()
