"""MDEQ in use: shapes, equilibrium, gradients, dropout, copies, misuse."""

from __future__ import annotations

import copy
import io
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

import distributed_worker
import mdeq_golden as golden
from phantomgrad import (
    Broyden,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    Solver,
    UnrolledPhantomGradient,
)
from phantomgrad.models import MDEQ, MDEQCell
from phantomgrad.models.mdeq.cell import NormedConv2d
from phantomgrad.nn import VariationalDropout
from problems import relative_error

TIGHT = FixedPoint(max_evaluations=400, tol=1e-15)
IMPLICIT = ImplicitGradient(solver=TIGHT)
PHANTOM = UnrolledPhantomGradient(3, 0.5)


def small(gradient: GradientEstimator = PHANTOM, solver: Solver = TIGHT, **settings: Any) -> MDEQ:
    """Three scales of few channels; contractive, so that everything can be known exactly.

    What varies in a state is small beside its mean, which the next normalisation divides by.
    """
    sizes = {
        "channels": (4, 6, 8),
        "head_channels": (2, 3, 4),
        "features": 5,
        "expansion": 2,
        "groups": 2,
        **settings,
    }
    model = MDEQ(3, 4, solver, gradient, **sizes)
    with torch.no_grad():
        for post in model.deq.cell.post:
            post[-1].weight.mul_(0.03)
            post[-1].bias.normal_()
    return model


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
    """Against upsampling by repetition and one path at a time; the input is left alone."""
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
    """Memory order changes no number, forward or backward."""
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


# --- Equilibrium and gradient ----------------------------------------------------------------


def test_equilibrium_holds_on_every_scale() -> None:
    model = small()
    with torch.no_grad():
        u = model.inject(torch.randn(5, 3, 8, 8))
        z, solution = model.deq(u, z0=model.start(u))
        torch.testing.assert_close(model.deq.cell(z, u), z)
    assert solution.converged.all()
    assert solution.z.shape == (5, 4 * 64 + 6 * 16 + 8 * 4)


def test_images_of_a_batch_do_not_see_each_other() -> None:
    model, images = small().eval(), torch.randn(4, 3, 8, 8)
    torch.testing.assert_close(model(images[:1]), model(images)[:1])


def dense_gradients(model: MDEQ, images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """Of stem and cell by the implicit function theorem, with the Jacobian written out."""
    u = model.inject(images)
    f, packed, packing = model.deq.close_over((u,), model.start(u))
    z = model.deq.solver.solve(f, packed).z.detach().requires_grad_()
    loss = F.cross_entropy(model.head(packing.unpack(z)), labels)
    (v,) = torch.autograd.grad(loss, z)
    jacobian = torch.autograd.functional.jacobian(f, z.detach()).detach()
    adjoint = torch.eye(z.numel()) - jacobian.view(z.numel(), z.numel()).mT
    cotangent = torch.linalg.solve(adjoint, v.flatten()).view_as(z)
    return torch.autograd.grad(f(z.detach()), inside(model), cotangent)


def inside(model: MDEQ) -> list[Tensor]:
    return [*model.stem.parameters(), *model.deq.parameters()]


@pytest.mark.parametrize(
    ("gradient", "exact"),
    [
        (IMPLICIT, True),
        (UnrolledPhantomGradient(80, 0.9), True),
        (NeumannPhantomGradient(80, 0.9), True),
        (UnrolledPhantomGradient(5, 0.5), False),
        (NeumannPhantomGradient(5, 0.5), False),
    ],
)
def test_gradient_is_that_of_a_dense_solve(gradient: GradientEstimator, exact: bool) -> None:
    """Of few phantom steps it is not: the test can fail."""
    model, images = small(gradient), torch.randn(2, 3, 4, 4)
    labels = torch.tensor([0, 2])
    expected = dense_gradients(model, images, labels)
    ours = torch.autograd.grad(F.nll_loss(model(images), labels), inside(model))
    error = relative_error(ours, expected)
    assert error < 1e-9 if exact else 1e-4 < error < 1


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)])
def test_every_parameter_learns(gradient: GradientEstimator) -> None:
    model = small(gradient, dropout=0.2)
    F.nll_loss(model(torch.randn(4, 3, 8, 8)), torch.tensor([0, 1, 2, 3])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name


# --- Unrolled pretraining --------------------------------------------------------------------


def test_unrolling_is_a_loop_from_zero_on_the_graph() -> None:
    model, images = small(), torch.randn(2, 3, 8, 8)
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


def test_unrolling_solves_nothing() -> None:
    model, images = small(), torch.randn(2, 3, 8, 8)
    model(images)
    assert model.deq.last_solution is not None
    model(images, unrolled=2)
    assert model.deq.last_solution is None


# --- Dropout and evaluation ------------------------------------------------------------------


def recorded_masks(model: MDEQ) -> list[Tensor]:
    """The masks of the first block's dropout, at every evaluation from now on."""
    masks: list[Tensor] = []
    model.deq.cell.blocks[0].dropout.register_forward_hook(lambda m, _i, _o: masks.append(m._mask))
    return masks


@pytest.mark.parametrize("gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)])
def test_one_mask_serves_solve_and_gradient(gradient: GradientEstimator) -> None:
    """Whole channels, per image; another one in the next forward."""
    model = small(gradient, dropout=0.4)
    masks = recorded_masks(model)
    model(torch.randn(3, 3, 8, 8)).sum().backward()
    evaluations = len(masks)
    assert evaluations > 3
    assert all(mask is masks[0] for mask in masks)
    assert masks[0].shape == (3, 4, 1, 1)
    model(torch.randn(3, 3, 8, 8))
    assert masks[evaluations] is not masks[0]


def test_one_mask_serves_all_unrolled_steps() -> None:
    model = small(dropout=0.4)
    masks = recorded_masks(model)
    for _ in range(2):
        model(torch.randn(3, 3, 8, 8), unrolled=3)
    assert [mask is masks[0] for mask in masks] == [True] * 3 + [False] * 3


def test_dropout_stands_before_the_injection() -> None:
    model = small(dropout=0.5)
    block = model.deq.cell.blocks[0]
    inputs: list[Tensor] = []
    block.norm2.register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
    with torch.no_grad():
        u = torch.randn(8, 4, 4, 4)
        block(torch.randn(8, 4, 4, 4), u)
    dropped = (block.dropout._mask == 0).flatten(1)  # (B, C)
    assert dropped.any()
    assert torch.equal(inputs[0][dropped], u[dropped])
    assert not torch.isclose(inputs[0][~dropped], u[~dropped]).all(dim=(1, 2)).any()


@torch.no_grad()
def test_evaluation_is_deterministic_and_reports_the_solve() -> None:
    model, images = small(dropout=0.4).eval(), torch.randn(2, 3, 8, 8)
    assert torch.equal(model(images), model(images))
    assert model.deq.last_solution.converged.all()
    assert all(m._mask is None for m in model.modules() if isinstance(m, VariationalDropout))
    model.train()
    assert not torch.equal(model(images), model(images))


def test_solver_takes_low_precision_maps() -> None:
    """Under autocast the map computes in bfloat16, states and gradients stay in float32."""
    model = small(UnrolledPhantomGradient(2, 0.5), Broyden(max_evaluations=6)).float()
    images = torch.randn(2, 3, 8, 8, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z: list[Tensor] = []
        model.head.register_forward_pre_hook(lambda _m, args: z.extend(args[0]))
        model(images).sum().backward()
    assert {state.dtype for state in z} == {torch.float32}
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("unrolled", [0, 3])
def test_weight_norm_is_computed_once_in_a_forward(unrolled: int) -> None:
    model, images, computed = small(), torch.randn(2, 3, 8, 8), []
    norm = model.deq.cell.blocks[0].conv1.parametrizations.weight[0]
    norm.register_forward_hook(lambda *_: computed.append(1))
    for forward in (1, 2):
        model(images, unrolled=unrolled).sum().backward()
        assert len(computed) == forward


# --- Copies and pickles ----------------------------------------------------------------------


def saved_and_loaded(model: MDEQ) -> MDEQ:
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)  # type: ignore[no-any-return]


def rebuilt(model: MDEQ) -> MDEQ:
    twin = small(model.deq.gradient)
    twin.load_state_dict(model.state_dict(), strict=True)
    return twin


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "twin_of",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved_and_loaded, rebuilt],
    ids=["deepcopy", "pickle", "torch.save", "state_dict"],
)
def test_twins_compute_the_same(twin_of: Any, used: bool) -> None:
    """And own what they compute with; making one draws no random number and leaves no trace."""
    model, images = small(), torch.randn(2, 3, 8, 8)
    if used:
        model(images).sum().backward()
        model.zero_grad()
    state = torch.random.get_rng_state()
    twin = twin_of(model)
    assert twin_of is rebuilt or torch.equal(torch.random.get_rng_state(), state)
    pairs = zip(model.named_parameters(), twin.named_parameters(), strict=True)
    for (name, ours), (twin_name, theirs) in pairs:
        assert name == twin_name
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()
    for one in (model, twin):
        one(images)[:, 0].sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)


def test_state_of_another_size_is_refused() -> None:
    with pytest.raises(RuntimeError, match="size mismatch for stem"):
        small().load_state_dict(small(channels=(8, 6, 8)).state_dict())


# --- Misuse ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"groups": 0}, "groups must be even and at least 2, got 0"),
        ({"groups": 3}, "groups must be even and at least 2, got 3"),
        ({"channels": (4, 5, 8)}, r"channels must be multiples of groups = 2, got \[4, 5, 8\]"),
        ({"channels": (0, 6, 8)}, r"channels must be multiples of groups = 2, got \[0, 6, 8\]"),
        ({"channels": ()}, r"channels must be multiples of groups = 2, got \[\]"),
        ({"head_channels": (2, 3)}, r"head_channels must be 3 positive widths, .* got \[2, 3\]"),
        ({"head_channels": (2, 0, 4)}, r"head_channels must be 3 positive widths, .* got \[2, 0"),
        ({"features": 0}, "features must be at least 1, got 0"),
        ({"expansion": 0}, "expansion must be at least 1, got 0"),
        ({"stem_strides": (1,)}, r"stem_strides must be two positive numbers, got \[1\]"),
        ({"stem_strides": (1, 0)}, r"stem_strides must be two positive numbers, got \[1, 0\]"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1"),
        ({"init_std": -0.1}, "init_std must not be negative, got -0.1"),
        ({"init_std": math.nan}, "init_std must not be negative, got nan"),
    ],
)
def test_bad_arguments_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**bad)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 8, 8), r"images must be \(B, 3, H, W\), got \(2, 1, 8, 8\)"),
        ((3, 8, 8), r"images must be \(B, 3, H, W\), got \(3, 8, 8\)"),
        ((2, 3, 8, 10), "sides that are multiples of 4, for 3 scales, got 8 x 10"),
        ((2, 3, 7, 8), "sides that are multiples of 4, for 3 scales, got 7 x 8"),
    ],
)
def test_bad_images_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small()(torch.zeros(shape))


def test_negative_unrolling_is_refused() -> None:
    with pytest.raises(ValueError, match="unrolled must be at least 0, got -1"):
        small()(torch.zeros(2, 3, 8, 8), unrolled=-1)


# --- Several processes -----------------------------------------------------------------------


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this build of torch has no gloo backend",
)
def test_distributed_gradients_are_those_of_the_global_batch(tmp_path: Path) -> None:
    """In every mode: with statistics of each process, those of its halves; else of the whole."""
    torch.multiprocessing.spawn(distributed_worker.train_mdeq_half, args=(str(tmp_path),), nprocs=2)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in (0, 1)]
    images = distributed_worker.global_images()
    for mode in distributed_worker.MODES:
        halves = [alone(mode, True, half) for half in images.chunk(2)]
        means = tuple((a + b) / 2 for a, b in zip(*halves, strict=True))
        whole = tuple(alone(mode, False, images))
        for found in ranks:
            assert relative_error(tuple(found[mode, True]), means) < 1e-8, mode
            assert relative_error(tuple(found[mode, False]), whole) < 1e-8, mode


def alone(mode: str, batch_statistics: bool, images: Tensor) -> list[Tensor]:
    model = distributed_worker.Multiscale(mode, batch_statistics)
    return distributed_worker.gradients(model, images)
