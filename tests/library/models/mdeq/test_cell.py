"""MDEQ: its equations, how it starts, and the shapes of its states."""

from __future__ import annotations

import math

import mdeq_golden as golden
import pytest
import torch
import torch.nn.functional as F
from mdeq_small import IMPLICIT, small
from problems import relative_error
from torch import Tensor, nn
from torch.nn.utils import parametrize

from phantomgrad.models import MDEQCell
from phantomgrad.models.mdeq.cell import NormedConv2d

# --- Equations -------------------------------------------------------------------------------


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


def test_norms_behind_the_fusion_have_half_the_groups() -> None:
    cell = MDEQCell((16, 8), groups=8)
    groups = {name: m.num_groups for name, m in cell.named_modules() if hasattr(m, "num_groups")}
    assert {n for name, n in groups.items() if name.startswith("post")} == {4}
    assert {n for name, n in groups.items() if not name.startswith("post")} == {8}


def test_only_blocks_and_post_fusion_are_weight_normed() -> None:
    names = {n for n, m in golden.sized("tiny").named_modules() if parametrize.is_parametrized(m)}
    blocks = {f"deq.cell.blocks.{i}.conv{k}" for i in range(2) for k in (1, 2)}
    assert names == blocks | {f"deq.cell.post.{i}.1" for i in range(2)}


# --- Initialisation --------------------------------------------------------------------------


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


# --- Shapes ----------------------------------------------------------------------------------


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


def test_layouts_agree() -> None:
    last, first = small(channels_last=True), small(channels_last=False)
    first.load_state_dict(last.state_dict())
    images = torch.randn(2, 3, 8, 8)
    results = []
    for model in (last, first):
        scores = model(images)
        results.append(
            (scores.detach(), *torch.autograd.grad(scores[:, 0].sum(), [*model.parameters()]))
        )
    assert relative_error(*results) < 1e-12
