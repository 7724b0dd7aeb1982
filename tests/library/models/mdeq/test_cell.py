"""MDEQ: its equations, initialisation, shapes and copies; refused arguments."""

from __future__ import annotations

import math
from typing import Any

import mdeq_golden as golden
import pytest
import torch
import torch.nn.functional as F
from mdeq_small import IMPLICIT, small
from torch import Tensor, nn
from twins import Twin, assert_twin, twins

from phantomgrad.models.mdeq.cell import NormedConv2d


def group_norm(x: Tensor, norm: nn.GroupNorm) -> Tensor:
    return F.group_norm(x, norm.num_groups, norm.weight, norm.bias)


@pytest.mark.parametrize("injected", [True, False])
def test_block_is_its_equation(injected: bool) -> None:
    block = small().deq.cell.blocks[1]
    z = torch.randn(2, 6, 4, 4)
    u = torch.randn(2, 6, 4, 4) if injected else torch.zeros(())
    kept = z.clone(), u.clone()
    a = F.relu(group_norm(F.conv2d(z, block.conv1.weight, padding=1), block.norm1))
    b = F.conv2d(a, block.conv2.weight, padding=1) + u
    expected = group_norm(F.relu(group_norm(b, block.norm2) + z), block.norm3)
    ours = block(z, u) if injected else block(z)
    torch.testing.assert_close(ours, expected)
    assert torch.equal(z, kept[0])
    assert torch.equal(u, kept[1])


def test_fusion_sums_every_pair_of_scales() -> None:
    fusion = small().deq.cell.fusion
    y = [torch.randn(2, c, 8 >> i, 8 >> i) for i, c in enumerate((4, 6, 8))]
    kept = [t.clone() for t in y]
    expected = [t.clone() for t in y]
    for name, path in fusion.paths.items():
        j, i = int(name[0]), int(name[-1])
        part = path(y[j])
        if j > i:
            part = part.repeat_interleave(2 ** (j - i), 2).repeat_interleave(2 ** (j - i), 3)
        expected[i] += part
    for ours, reference in zip(fusion(y), expected, strict=True):
        torch.testing.assert_close(ours, reference)
    assert all(torch.equal(a, b) for a, b in zip(y, kept, strict=True))
    assert [len(fusion.paths[name]) for name in ("2_to_0", "0_to_1", "0_to_2")] == [2, 2, 5]


def test_cifar_models_start_with_small_kernels_where_there_is_no_weight_norm() -> None:
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


def test_imagenet_models_keep_the_initialisation_of_torch() -> None:
    stem = small(init_std=None).stem
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
def test_images_of_any_size_that_divides_into_the_scales(
    size: tuple[int, int], strides: tuple[int, int], finest: tuple[int, int], channels_last: bool
) -> None:
    model = small(stem_strides=strides, channels_last=channels_last)
    scores = model(torch.randn(2, 3, *size))
    assert scores.shape == (2, 4)
    torch.testing.assert_close(scores.exp().sum(dim=1), torch.ones(2))
    u = model.inject(torch.randn(2, 3, *size))
    height, width = finest
    shapes = [tuple(z.shape) for z in model.start(u)]
    assert shapes == [(2, c, height >> i, width >> i) for i, c in enumerate((4, 6, 8))]


def test_one_scale_is_a_model_too() -> None:
    model = small(IMPLICIT, channels=(4,), head_channels=(2,))
    model(torch.randn(2, 3, 5, 7)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("used", [False, True])
@twins(lambda model: small(model.deq.gradient))
def test_copies_and_pickles(twin_of: Twin, used: bool) -> None:
    images = torch.randn(2, 3, 8, 8)
    assert_twin(small(), twin_of, lambda model: model(images)[:, 0].sum(), used)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"groups": 3}, "groups must be even and at least 2, got 3"),
        ({"channels": (4, 5, 8)}, r"channels must be multiples of groups = 2, got \[4, 5, 8\]"),
        ({"head_channels": (2, 3)}, r"head_channels must be 3 positive widths, .* got \[2, 3\]"),
        ({"features": 0}, "features must be at least 1, got 0"),
        ({"expansion": 0}, "expansion must be at least 1, got 0"),
        ({"stem_strides": (1, 0)}, r"stem_strides must be two positive numbers, got \[1, 0\]"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1"),
        ({"groups": 8.0}, "groups must be an integer, got 8.0"),
        ({"channels": 8}, "channels must be a list, got 8"),
        ({"channels": (8.0, 8)}, r"channels must hold integers, got \[8.0, 8\]"),
        ({"init_std": -0.1}, "init_std must be finite and not negative, got -0.1"),
    ],
)
def test_bad_arguments_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**bad)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 8, 8), r"images must be \(B, 3, H, W\), got \(2, 1, 8, 8\)"),
        ((2, 3, 8, 10), "sides that are multiples of 4, for 3 scales, got 8 x 10"),
    ],
)
def test_bad_images_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small()(torch.zeros(shape))


def test_negative_unrolling_is_refused() -> None:
    with pytest.raises(ValueError, match="unrolled must be at least 0, got -1"):
        small()(torch.zeros(2, 3, 8, 8), unrolled=-1)
