"""MDEQ against the numbers of the official code: forward passes, solves, gradients, sizes."""

from __future__ import annotations

import functools

import mdeq_golden as golden
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from training import composed

from phantomgrad import (
    Broyden,
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import MDEQ

TIGHT = Broyden(max_evaluations=80, tol=1e-13)
NUMBERS = golden.NUMBERS
PHANTOM = {"upg": UnrolledPhantomGradient, "npg": NeumannPhantomGradient}


def settings(case: str) -> tuple[int, float]:
    steps, damping = case.split(", ")
    return int(steps), float(damping)


def printed(ours: list[float], reference: list[float], digits: int) -> None:
    """Equal up to the printed digits."""
    assert ours == pytest.approx(reference, rel=0, abs=0.51 * 10**-digits)


# --- Forward ---------------------------------------------------------------------------------


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("size", ["tiny", "large"])
@torch.no_grad()
def test_map_and_head_are_the_official_ones(size: str, channels_last: bool) -> None:
    model = golden.filled(golden.sized(size, channels_last=channels_last)).eval()
    cell = model.deq.cell
    u = model.inject(golden.images())
    z = golden.cosine_state(model, u)
    ours = {"u": u, "y_0": cell.blocks[0](z[0], u)}
    ours |= {f"f_{i}(z)": s for i, s in enumerate(cell(z, u))}
    ours |= {f"f_{i}(0)": s for i, s in enumerate(cell(model.start(u), u))}
    for name, reference in NUMBERS["forward"][size].items():
        printed(golden.statistics(ours[name]), reference, 8)
    printed(model.head(z)[0, :4].tolist(), NUMBERS["logits"][size], 8)


@pytest.mark.parametrize("case", NUMBERS["broyden"])
@torch.no_grad()
def test_broyden_takes_the_official_steps(case: str) -> None:
    size, step = case.split(", ")
    solver = Broyden(
        max_evaluations=9, tol=0, stop="absolute", record_trace=True, first_step=float(step)
    )
    model = golden.filled(golden.sized(size, solver)).eval()
    u = model.inject(golden.images())
    trace = model.deq(u, z0=model.start(u))[1].trace
    ours = torch.linalg.vector_norm(trace, dim=1).tolist()
    printed(ours, NUMBERS["broyden"][case], 6)


# --- Gradients -------------------------------------------------------------------------------


def trained(
    model: MDEQ, z0: tuple[Tensor, ...] | None = None, unrolled: int = 0
) -> tuple[list[float], Tensor]:
    """Loss, first logit and gradient norms of a training step, and the injection."""
    u = model.inject(golden.images())
    u.retain_grad()
    z, _ = model.deq(u, z0=model.start(u) if z0 is None else z0)
    logits = model.head(z)
    loss = F.cross_entropy(logits, golden.LABELS)
    loss.backward()
    return [loss.item(), logits[0, 0].item(), *golden.gradient_norms(model)], u


@pytest.mark.parametrize("case", NUMBERS["from_zero"])
def test_unrolled_gradients_from_zero_are_the_official_ones(case: str) -> None:
    gradient = UnrolledPhantomGradient(*settings(case))
    ours, _ = trained(golden.filled(golden.sized("tiny", gradient=gradient)))
    reference = NUMBERS["from_zero"][case]
    printed(ours[:2], reference[:2], 8)
    assert ours[2:] == pytest.approx(reference[2:], rel=5.1e-6, abs=1e-12)


@pytest.mark.parametrize("case", NUMBERS["from_cosine"])
def test_phantom_gradients_from_a_state_are_the_official_ones(case: str) -> None:
    name, steps = case.split(", ")
    model = golden.filled(golden.sized("tiny", gradient=PHANTOM[name](int(steps), 0.5)))
    state = golden.cosine_state(model, torch.zeros(2, 24, 32, 32))
    ours, u = trained(model, state)
    reference = NUMBERS["from_cosine"][case]
    assert ours[:2] == pytest.approx(reference[:2], rel=5.1e-12)
    assert ours[2:] == pytest.approx(reference[2:], rel=5.1e-9)
    if name == "npg":
        injection = golden.statistics(u.grad)[1:]
        assert injection == pytest.approx(NUMBERS["injection_gradient"][steps], rel=1e-10)


@functools.cache
def equilibrium() -> tuple[Tensor, ...]:
    """The equilibrium of fill B in training mode."""
    model = golden.filled(golden.sized("tiny", TIGHT), contractive=True)
    with torch.no_grad():
        u = model.inject(golden.images())
        z: tuple[Tensor, ...] = model.deq(u, z0=model.start(u))[0]
    return z


def test_equilibrium_is_the_official_one() -> None:
    for state, reference in zip(equilibrium(), NUMBERS["fixed_point"], strict=True):
        assert golden.statistics(state) == pytest.approx(reference, rel=1e-10)


@pytest.mark.parametrize("case", NUMBERS["from_fixed_point"])
def test_gradients_at_an_equilibrium_are_the_official_ones(case: str) -> None:
    name, steps = case.split(", ")
    gradient: GradientEstimator = (
        ImplicitGradient(solver=TIGHT) if name == "implicit" else PHANTOM[name](int(steps), 0.5)
    )
    model = golden.filled(golden.sized("tiny", gradient=gradient), contractive=True)
    ours, _ = trained(model, equilibrium())
    reference = NUMBERS["from_fixed_point"][case]
    assert ours[:2] == pytest.approx(reference[:2], rel=5.1e-12)
    assert ours[2:] == pytest.approx(reference[2:], rel=5.1e-9)


@functools.cache
def flat_gradient(gradient: GradientEstimator) -> Tensor:
    """The gradient of all parameters of stem and cell at the equilibrium of fill B."""
    model = golden.filled(golden.sized("tiny", gradient=gradient), contractive=True)
    trained(model, equilibrium())
    wanted = [*model.stem.parameters(), *model.deq.parameters()]
    return torch.cat([p.grad.flatten() for p in wanted])


@pytest.mark.parametrize("case", NUMBERS["distance_to_exact"])
def test_phantom_gradients_are_as_close_to_the_exact_one_as_officially(case: str) -> None:
    exact = flat_gradient(ImplicitGradient(solver=TIGHT))
    ours = flat_gradient(NeumannPhantomGradient(*settings(case)))
    cosine = F.cosine_similarity(ours, exact, dim=0)
    error = torch.linalg.vector_norm(ours - exact) / torch.linalg.vector_norm(exact)
    printed([cosine.item(), error.item()], NUMBERS["distance_to_exact"][case], 9)


@pytest.mark.parametrize("size", ["tiny", "large"])
def test_unrolled_pretraining_has_the_official_loss(size: str) -> None:
    model = golden.filled(golden.sized(size))
    with torch.no_grad():
        loss = F.nll_loss(model(golden.images(), unrolled=10), golden.LABELS)
    printed([loss.item()], [NUMBERS["unrolled_loss"][size]], 8)


# --- Sizes -----------------------------------------------------------------------------------


def count(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def paths(model: MDEQ, upwards: bool) -> list[nn.Module]:
    named = model.deq.cell.fusion.paths.items()
    return [path for name, path in named if (name[0] > name[-1]) == upwards]


@pytest.mark.parametrize(
    ("size", "total"), [("tiny", 158_986), ("large", 11_098_398), ("imagenet_small", 16_808_936)]
)
def test_size_is_the_official_one(size: str, total: int) -> None:
    with torch.device("meta"):
        model = golden.sized(size)
    cell, head = model.deq.cell, model.head
    parts = [
        count(model.stem[:6]),
        count(model.stem[6:]),
        *map(count, cell.blocks),
        count(*paths(model, upwards=True)),
        count(*paths(model, upwards=False)),
        *map(count, cell.post),
        count(head.bottlenecks),
        count(head.downs),
        count(head.final),
        count(head.output),
    ]
    blocks, post = (92_800, 369_920, 1_477_120, 5_903_360), (1_120, 4_288, 16_768, 66_304)
    large = [10_208, 1_088, *blocks, 72_384, 712_128, *post]
    expected = {
        "tiny": [5_928, 0, 52_320, 52_320, 624, 5_232, 648, 648, 7_232, 18_624, 13_400, 2_010],
        "large": [*large, 408_660, 1_187_760, 757_680, 16_810],
        "imagenet_small": [*large, 965_760, 3_487_680, 1_579_008, 2_049_000],
    }
    assert parts == expected[size]
    assert count(model) == sum(parts) == total
    gains = sum(p.numel() for n, p in cell.named_parameters() if n.endswith("original0"))
    assert gains == (336 if size == "tiny" else 3_360)
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    ("size", "side", "expected"),
    [
        ("tiny", 32, [5_971_968, 68_567_040, 11_175_888]),
        ("large", 32, [11_370_496, 411_631_616, 75_022_752]),
        ("imagenet_small", 224, [42_950_656, 1_260_621_824, 611_385_344]),
    ],
)
def test_multiply_adds_are_the_official_ones(size: str, side: int, expected: list[int]) -> None:
    with torch.device("meta"):
        model = golden.sized(size).eval()
        image = torch.empty(1, 3, side, side)
        u, z = model.inject(image), model.start(model.inject(image))
        calls = [lambda: model.inject(image), lambda: model.deq.cell(z, u), lambda: model.head(z)]
        counts = []
        for call in calls:
            with FlopCounterMode(display=False) as counter:
                call()
            counts.append(counter.get_total_flops() // 2)
    assert counts == expected
    assert sum(s.numel() for s in z) == golden.BUDGETS[size][1]


@pytest.mark.parametrize("size", golden.SIZES)
def test_configurations_have_these_sizes(size: str) -> None:
    from hydra.utils import instantiate

    names = [f"model=mdeq_{size}", f"solver=mdeq_{size}", f"solver@adjoint=mdeq_{size}_adjoint"]
    config = composed([*names, "gradient=implicit"])
    with torch.device("meta"):
        ours = instantiate(config.model, in_channels=3, classes=golden.CLASSES[size])
        model = golden.sized(size)
    assert str(ours).split("solver=")[0] == str(model).split("solver=")[0]
    assert (ours.stem[0].stride, ours.channels_last) == (model.stem[0].stride, True)
    assert config.model.get("init_std", 0.01) == golden.SIZES[size].get("init_std", 0.01)
    evaluations, _ = golden.BUDGETS[size]
    for solver, rms in ((ours.deq.solver, 1e-5), (ours.deq.gradient.solver, 2e-10)):
        assert (type(solver), solver.stop, solver.norm) == (Broyden, "absolute", "rms")
        assert (solver.max_evaluations, solver.tol) == (evaluations, rms)
