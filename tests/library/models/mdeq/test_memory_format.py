"""Memory layout of MDEQ's kernels, which follows that of the images."""

import copy

import pytest
import torch
from problems import Dispatched
from small_models import mdeq
from torch import nn

from phantomgrad import FixedPoint

layouts = pytest.mark.parametrize("channels_last", [True, False])


def model(channels_last):
    torch.manual_seed(3)
    return mdeq(solver=FixedPoint(max_evaluations=4, tol=0), channels_last=channels_last)


def kernels(module):
    """All kernels larger than 1 x 1, with and without weight norm."""
    convolutions = [m for m in module.modules() if isinstance(m, nn.Conv2d)]
    return [m.weight for m in convolutions if m.kernel_size != (1, 1)]


def are_channels_last(kernels):
    return {kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels}


@layouts
def test_kernels_have_the_layout_of_the_images(channels_last):
    for made in (model(channels_last), copy.deepcopy(model(channels_last))):
        assert are_channels_last(kernels(made)) == {channels_last}


def test_names_values_and_gradients_do_not_depend_on_the_layout():
    images, last, first = torch.randn(2, 3, 8, 8), model(True), model(False)
    assert list(last.state_dict()) == list(first.state_dict())
    for made in (last, first):
        made(images).square().sum().backward()
    torch.testing.assert_close([*last.parameters()], [*first.parameters()], rtol=0, atol=0)
    torch.testing.assert_close(*([p.grad for p in made.parameters()] for made in (last, first)))
    last.load_state_dict({name: 2 * value for name, value in first.state_dict().items()})
    assert are_channels_last(kernels(last)) == {True}


@layouts
def test_convolutions_get_contiguous_operands_elsewhere(channels_last):
    """On CUDA, for example, group normalisation returns images channels first."""
    made, orders = model(channels_last).to("meta"), set()

    def see(operation, operands):
        if operation is torch.ops.aten.convolution.default and operands[1].shape[2] > 1:
            orders.add(tuple(operand.is_contiguous() for operand in operands[:2]))

    with Dispatched(see):
        u = made.inject(torch.randn(2, 3, 8, 8, device="meta"))
        made.head(made.deq.cell(made.start(u), u))
    assert orders == {(True, True)}
