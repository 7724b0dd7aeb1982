"""MDEQ against the numbers of the official code: forward passes, solves, gradients, sizes."""

import functools

import mdeq_golden as golden
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode
from training import composed

import phantomgrad as pg

TIGHT = pg.Broyden(max_evaluations=80, tol=1e-13)
NUMBERS = golden.NUMBERS
ROWS = {
    "tiny": "table1/implicit",
    "large": "table3/cifar10_implicit",
    "imagenet_small": "table3/imagenet_implicit",
}


def printed(ours, reference, digits):
    """Equal up to the printed digits."""
    assert ours == pytest.approx(reference, rel=0, abs=0.51 * 10**-digits)


@pytest.mark.parametrize(("size", "channels_last"), [("tiny", 0), ("tiny", 1), ("large", 1)])
@torch.no_grad()
def test_map_and_head_are_the_official_ones(size, channels_last):
    model = golden.filled(golden.sized(size, channels_last=bool(channels_last))).eval()
    cell = model.deq.cell
    u = model.inject(golden.images())
    z = golden.cosine_state(model, u)
    ours = {"u": u, "y_0": cell.blocks[0](z[0], u)}
    ours |= {f"f_{i}(z)": s for i, s in enumerate(cell(z, u))}
    ours |= {f"f_{i}(0)": s for i, s in enumerate(cell(model.start(u), u))}
    for name, reference in NUMBERS["forward"][size].items():
        printed(golden.statistics(ours[name]), reference, 8)
    printed(model.head(z)[0, :4].tolist(), NUMBERS["logits"][size], 8)


@pytest.mark.parametrize("size", ["tiny", "large"])
@torch.no_grad()
def test_broyden_takes_the_official_steps(size):
    """With the first step g; the official code also has one of -g, which ours has not."""
    solver = pg.Broyden(max_evaluations=9, tol=0, stop="absolute", record_trace=True)
    model = golden.filled(golden.sized(size, solver)).eval()
    u = model.inject(golden.images())
    trace = model.deq(u, z0=model.start(u))[1].trace
    ours = torch.linalg.vector_norm(trace, dim=1).tolist()
    printed(ours, NUMBERS["broyden"][f"{size}, 1.0"], 6)


def estimator(first, second):
    """Either steps and damping of UPG, or a name and the steps with damping 0.5."""
    if first == "implicit":
        return pg.ImplicitGradient(solver=TIGHT)
    if first == "npg":
        return pg.NeumannPhantomGradient(int(second), 0.5)
    steps, damping = (second, "0.5") if first == "upg" else (first, second)
    return pg.UnrolledPhantomGradient(int(steps), float(damping))


@functools.cache
def equilibrium():
    """The equilibrium of fill B in training mode."""
    model = golden.filled(golden.sized("tiny", TIGHT), contractive=True)
    with torch.no_grad():
        u = model.inject(golden.images())
        return model.deq(u, z0=model.start(u))[0]


@functools.cache
def step(start, gradient):
    """Loss, first logit and norms of gradients, of a step whose solver has found a given state."""
    contractive = start == "from_fixed_point"
    model = golden.filled(golden.sized("tiny", gradient=gradient), contractive=contractive)
    u = model.inject(golden.images())
    if contractive:
        z0 = equilibrium()
    else:
        z0 = golden.cosine_state(model, u) if start == "from_cosine" else model.start(u)
    logits = model.head(model.deq(u, z0=z0)[0])
    loss = F.cross_entropy(logits, golden.LABELS)
    loss.backward()
    return [loss.item(), logits[0, 0].item(), *golden.gradient_norms(model)]


STEPS = ("from_zero", "from_cosine", "from_fixed_point")


@pytest.mark.parametrize(
    ("start", "case"), [(start, case) for start in STEPS for case in NUMBERS[start]]
)
def test_losses_and_gradients_are_the_official_ones(start, case):
    ours, reference = step(start, estimator(*case.split(", "))), NUMBERS[start][case]
    if start == "from_zero":  # printed with fewer digits
        printed(ours[:2], reference[:2], 8)
        assert ours[2:] == pytest.approx(reference[2:], rel=5.1e-6, abs=1e-12)
    else:
        assert ours[:2] == pytest.approx(reference[:2], rel=5.1e-12)
        assert ours[2:] == pytest.approx(reference[2:], rel=5.1e-9)


def test_equilibrium_is_the_official_one():
    for state, reference in zip(equilibrium(), NUMBERS["fixed_point"], strict=True):
        assert golden.statistics(state) == pytest.approx(reference, rel=1e-10)


@pytest.mark.parametrize("size", ["tiny", "large"])
def test_unrolled_pretraining_has_the_official_loss(size):
    model = golden.filled(golden.sized(size))
    with torch.no_grad():
        loss = F.nll_loss(model(golden.images(), unrolled=10), golden.LABELS)
    printed([loss.item()], [NUMBERS["unrolled_loss"][size]], 8)


@pytest.mark.parametrize(
    ("size", "total"), [("tiny", 158_986), ("large", 11_098_398), ("imagenet_small", 16_808_936)]
)
def test_size_is_the_official_one(size, total):
    with torch.device("meta"):
        model = golden.sized(size)
    assert sum(p.numel() for p in model.parameters()) == total
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    ("size", "side", "expected"),
    [
        ("tiny", 32, [5_971_968, 68_567_040, 11_175_888]),
        ("large", 32, [11_370_496, 411_631_616, 75_022_752]),
        ("imagenet_small", 224, [42_950_656, 1_260_621_824, 611_385_344]),
    ],
)
def test_multiply_adds_are_the_official_ones(size, side, expected):
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


@pytest.mark.parametrize("size", golden.CLASSES)
def test_configurations_have_these_sizes(size):
    from hydra.utils import instantiate

    config = composed([f"experiment={ROWS[size]}", "model.dropout=0.0"])
    with torch.device("meta"):
        ours = instantiate(config.model, in_channels=3, classes=golden.CLASSES[size])
        model = golden.sized(size)
    assert str(ours).split("solver=")[0] == str(model).split("solver=")[0]
    assert (ours.stem[0].stride, ours.channels_last) == (model.stem[0].stride, True)
    assert config.model.get("init_std", 0.01) == (None if size == "imagenet_small" else 0.01)
    evaluations, _ = golden.BUDGETS[size]
    for solver, rms in ((ours.deq.solver, 1e-5), (ours.deq.gradient.solver, 2e-10)):
        assert (type(solver), solver.stop, solver.norm) == (pg.Broyden, "absolute", "rms")
        assert (solver.max_evaluations, solver.tol) == (evaluations, rms)
