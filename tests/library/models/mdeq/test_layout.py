"""Memory layout of MDEQ's kernels, which follows that of the images."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from phantomgrad import FixedPoint, UnrolledPhantomGradient
from phantomgrad.models import MDEQ
from phantomgrad.models.mdeq.cell import NormedConv2d


def model(channels_last: bool) -> MDEQ:
    torch.manual_seed(3)
    return MDEQ(
        *(3, 4, FixedPoint(max_evaluations=4, tol=0), UnrolledPhantomGradient(2, 0.5)),
        channels=[8, 8],
        head_channels=[2, 2],
        features=6,
        channels_last=channels_last,
    )


def kernels(module: nn.Module) -> dict[str, Tensor]:
    """All kernels larger than 1 x 1."""
    return {
        name: child.weight
        for name, child in module.named_modules()
        if isinstance(child, nn.Conv2d) and child.kernel_size != (1, 1)
    }


def is_channels_last(kernel: Tensor) -> bool:
    return kernel.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("channels_last", [True, False])
def test_kernels_have_the_layout_of_the_images(channels_last: bool) -> None:
    for made in (model(channels_last), copy.deepcopy(model(channels_last))):
        found = kernels(made)
        assert any(isinstance(made.get_submodule(name), NormedConv2d) for name in found)
        assert {is_channels_last(kernel) for kernel in found.values()} == {channels_last}


def test_names_and_values_do_not_depend_on_the_layout() -> None:
    last, first = model(True), model(False)
    assert list(last.state_dict()) == list(first.state_dict())
    for mine, other in zip(last.parameters(), first.parameters(), strict=True):
        assert torch.equal(mine, other)
    last.load_state_dict({name: 2 * value for name, value in first.state_dict().items()})
    assert all(is_channels_last(kernel) for kernel in kernels(last).values())


def test_outputs_and_gradients_do_not_depend_on_the_layout() -> None:
    images = torch.randn(2, 3, 8, 8)
    last, first = model(True), model(False)
    for made in (last, first):
        made(images).square().sum().backward()
    for mine, other in zip(last.parameters(), first.parameters(), strict=True):
        assert (mine.grad is None) == (other.grad is None)
        if mine.grad is not None:
            torch.testing.assert_close(mine.grad, other.grad)


# --- Where group normalisation returns images channels first, as on CUDA -------------------------


class Orders(TorchDispatchMode):
    """Records the memory layout of the operands of every convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[bool, ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.convolution.default and args[1].shape[2] > 1:
            self.seen.add(tuple(operand.is_contiguous() for operand in args[:2]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("channels_last", [True, False])
def test_convolutions_get_contiguous_operands_elsewhere(channels_last: bool) -> None:
    made = model(channels_last).to("meta")
    with Orders() as orders:
        u = made.inject(torch.randn(2, 3, 8, 8, device="meta"))
        made.head(made.deq.cell(made.start(u), u))
    assert orders.seen == {(True, True)}
