"""MDEQ: its equations, initialisation and shapes."""

import math

import mdeq_golden as golden
import pytest
import torch
import torch.nn.functional as F
from problems import relative_error
from small_models import mdeq
from torch import nn

from phantomgrad.nn import NormedConv2d, current_pass, one_pass


def group_norm(x, norm):
    return F.group_norm(x, norm.num_groups, norm.weight, norm.bias)


@pytest.mark.parametrize("injected", [True, False])
def test_block_is_its_equation(injected):
    block = mdeq().deq.cell.blocks[1]
    z = torch.randn(2, 6, 4, 4)
    u = torch.randn(2, 6, 4, 4) if injected else torch.zeros(())
    a = F.relu(group_norm(F.conv2d(z, block.conv1.weight, padding=1), block.norm1))
    b = F.conv2d(a, block.conv2.weight, padding=1) + u
    expected = group_norm(F.relu(group_norm(b, block.norm2) + z), block.norm3)
    ours = block(z, u) if injected else block(z)
    torch.testing.assert_close(ours, expected)
    assert (z._version, u._version) == (0, 0)  # not modified in place


def test_fusion_sums_every_pair_of_scales():
    fusion = mdeq().deq.cell.fusion
    y = [torch.randn(2, c, 8 >> i, 8 >> i) for i, c in enumerate((4, 6, 8))]
    expected = [t.clone() for t in y]
    for name, path in fusion.paths.items():
        j, i = int(name[0]), int(name[-1])
        part = path(y[j])
        if j > i:
            part = part.repeat_interleave(2 ** (j - i), 2).repeat_interleave(2 ** (j - i), 3)
        expected[i] += part
    torch.testing.assert_close([*fusion(y)], expected)
    assert {t._version for t in y} == {0}  # not modified in place
    assert [len(fusion.paths[name]) for name in ("2_to_0", "0_to_1", "0_to_2")] == [2, 2, 5]


def test_cifar_models_start_with_small_kernels_where_there_is_no_weight_norm():
    model = golden.sized("tiny")
    kernels = {n: m for n, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    for name, convolution in kernels.items():
        if isinstance(convolution, NormedConv2d):
            fan_in = convolution.weight[0].numel()
            bound, gain = 1 / math.sqrt(fan_in), convolution.parametrizations.weight.original0
            assert 0.9 * bound < convolution.weight.abs().max() <= bound, name
            assert gain.mean().item() == pytest.approx(1 / math.sqrt(3), rel=0.05)
        else:
            assert convolution.weight.std().item() == pytest.approx(0.01, rel=0.15), name
            if convolution.bias is not None:
                assert convolution.bias.std().item() == pytest.approx(0.01, rel=0.4), name
    assert model.head.output.weight.abs().max().item() == pytest.approx(200**-0.5, rel=0.01)


def test_imagenet_models_keep_the_initialisation_of_torch():
    stem = mdeq(init_std=None).stem
    assert 0.9 / math.sqrt(27) < stem[0].weight.abs().max() <= 1 / math.sqrt(27)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(
    ("size", "strides", "finest"),
    [
        ((8, 8), (1, 1), (8, 8)),
        ((12, 20), (1, 1), (12, 20)),
        ((13, 29), (2, 2), (4, 8)),
        ((7, 16), (2, 1), (4, 8)),
    ],
)
def test_images_of_any_size_that_divides_into_the_scales(size, strides, finest, channels_last):
    model = mdeq(stem_strides=strides, channels_last=channels_last)
    scores = model(torch.randn(2, 3, *size))
    assert scores.shape == (2, 4)
    torch.testing.assert_close(scores.exp().sum(dim=1), torch.ones(2))
    u = model.inject(torch.randn(2, 3, *size))
    height, width = finest
    shapes = [tuple(z.shape) for z in model.start(u)]
    assert shapes == [(2, c, height >> i, width >> i) for i, c in enumerate((4, 6, 8))]


def test_one_scale_is_a_model_too():
    model = mdeq(channels=(4,), head_channels=(2,))
    model(torch.randn(2, 3, 5, 7)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_unrolling_is_a_loop_from_zero_on_the_graph():
    model, images = mdeq(), torch.randn(2, 3, 8, 8)
    u = model.inject(images)
    z = model.start(u)
    for _ in range(4):
        z = model.deq.cell(z, u)
    expected = F.log_softmax(model.head(z), dim=1)
    ours = model(images, unrolled=4)
    torch.testing.assert_close(ours, expected)
    wanted = list(model.parameters())
    gradients = [torch.autograd.grad(scores[:, 1].sum(), wanted) for scores in (ours, expected)]
    assert relative_error(*gradients) < 1e-12


def test_dropout_is_applied_before_the_injection():
    model = mdeq(dropout=0.5)
    block = model.deq.cell.blocks[0]
    inputs = []
    block.norm2.register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
    with torch.no_grad(), one_pass(block):
        u = torch.randn(8, 4, 4, 4)
        block(torch.randn(8, 4, 4, 4), u)
        dropped = (current_pass().masks[id(block.dropout)] == 0).flatten(1)  # (B, C)
    assert dropped.any()
    assert torch.equal(inputs[0][dropped], u[dropped])
    assert not torch.isclose(inputs[0][~dropped], u[~dropped]).all(dim=(1, 2)).any()
