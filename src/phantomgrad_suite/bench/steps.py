"""Cases: training steps (forward and backward) of several models, and training epochs of IGNN."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn

from phantomgrad.deq import DEQ
from phantomgrad.gradients import (
    GradientEstimator,
    ImplicitGradient,
    NeumannPhantomGradient,
    UnrolledPhantomGradient,
)
from phantomgrad.models import MDEQ, GraphClassifier, TransformerLM
from phantomgrad.models.transformer import Memory
from phantomgrad.solvers import Broyden, FixedPoint, Solver
from phantomgrad_suite.bench.contest import IMPLICIT, OURS, PEER, Case, Contender, Run
from phantomgrad_suite.bench.peer import HOISTED, PeerDEQ, use_peer
from phantomgrad_suite.data import WikiText103
from phantomgrad_suite.data.graphs.tu import GraphBatch, GraphFolds
from phantomgrad_suite.jobs.compose import CONFIGS
from phantomgrad_suite.studies.meters import Clock, Watch

Step = tuple[nn.Module, Callable[[], Tensor]]  # a model, and a call that computes its loss
Build = Callable[[Solver, GradientEstimator, torch.device], Step]


def training_cases(*, quick: bool = False) -> list[Case]:
    """Return the steps of all models with the paper's budgets and k; of small batches if quick."""
    streams, length = (1, 16) if quick else (16, 64)
    sizes = {"tiny": (1, 23)} if quick else {"tiny": (64, 23), "large": (8, 19)}
    cases = []
    for size, (batch, budget) in sizes.items():
        cases += step_cases(
            f"MDEQ-{size.capitalize()}, {batch} images",
            partial(mdeq, size, batch),
            solver=Broyden(max_evaluations=budget, tol=0),
            adjoint=Broyden(max_evaluations=budget, tol=0),
        )
    cases += step_cases(
        f"TransformerLM, {streams} x {length} words",
        partial(transformer, streams, length),
        solver=Broyden(max_evaluations=31, tol=0),
        adjoint=Broyden(max_evaluations=41, tol=0),
        damping=0.8,
        hoisted=True,
    )
    return cases


def step_cases(
    name: str,
    build: Build,
    *,
    solver: Solver,
    adjoint: Solver,
    damping: float = 0.5,
    hoisted: bool = False,
) -> list[Case]:
    """Return the step of a model by implicit differentiation, and by UPG with k = 5.

    If ``hoisted``, our cell computes a context once per solve. The peer then gets a map that does
    so at every evaluation, and ours as another contender.
    """
    implicit = ImplicitGradient(solver=adjoint, on_failure="ignore")
    cases = []
    for label, gradient in (("implicit", implicit), ("UPG", UnrolledPhantomGradient(5, damping))):
        make = partial(build, solver, gradient)
        contenders = {
            OURS: partial(contender, make),
            PEER: partial(contender, make, adapt=partial(use_peer, whole=hoisted)),
        }
        if gradient is not implicit:
            contenders[IMPLICIT] = partial(contender, partial(build, solver, implicit))
        if hoisted:
            contenders[HOISTED] = partial(contender, make, adapt=use_peer)
        cases.append(Case(name=f"{name}, {label}", contenders=contenders))
    return cases


def contender(
    make: Callable[[torch.device], Step],
    clock: Clock,
    *,
    adapt: Callable[[nn.Module], None] | None = None,
) -> Contender:
    """Return a call that makes a step of the model, after ``adapt`` has changed its layers.

    ``step in f`` is a step without the time that our solvers spend outside ``f``.
    """
    model, loss = make(clock.device)
    if adapt is not None:
        adapt(model)
    watch = Watch(clock)
    calls: list[None] = []  # of the cells
    for layer in list(model.modules()):
        if isinstance(layer, DEQ | PeerDEQ):
            layer.cell.register_forward_hook(lambda *_: calls.append(None))
        if isinstance(layer, DEQ):
            layer.solver = watch.over(layer.solver)
            if isinstance(layer.gradient, ImplicitGradient):
                adjoint = watch.over(layer.gradient.solver)
                layer.gradient = replace(layer.gradient, solver=adjoint)

    def run() -> Run:
        calls.clear()
        model.zero_grad(set_to_none=True)
        start = clock.mark()
        value = loss()
        middle = clock.mark()
        value.backward()  # type: ignore[no-untyped-call]
        end = clock.mark()
        step, solves = clock.seconds(start, end), watch.take()
        seconds = {
            "step": step,
            "forward": clock.seconds(start, middle),
            "backward": clock.seconds(middle, end),
            "step in f": step - solves.outside,
        }
        if solves.evaluations:
            seconds |= {"solves": solves.seconds, "outside f": solves.outside}
        return Run(seconds, len(calls))

    return run


def mdeq(
    size: str,
    batch: int,
    solver: Solver,
    gradient: GradientEstimator,
    device: torch.device,
    side: int = 32,
) -> Step:
    """Return the step of a size of MDEQ on images like those of CIFAR-10."""
    torch.manual_seed(0)
    model = MDEQ(3, 10, solver, gradient, **sizes(f"mdeq_{size}")).to(device)
    model.deq.check_map = False  # the evaluations are counted
    images = torch.randn(batch, 3, side, side).to(device)
    labels = torch.randint(10, (batch,)).to(device)
    return model, lambda: F.nll_loss(model(images), labels)


def transformer(
    batch: int, length: int, solver: Solver, gradient: GradientEstimator, device: torch.device
) -> Step:
    """Return the step of the model of the rows ``wikitext``, on random words and a full memory."""
    torch.manual_seed(0)
    settings = sizes("transformer_small")
    kept = settings["memory_length"]
    data = WikiText103.synthetic(
        name="wikitext103-valid", batch_size=batch, segment_length=kept + length
    )
    model = TransformerLM(data.sizes()["vocabulary"], solver, gradient, **settings).to(device)
    model.deq.check_map = False
    tokens, targets, _ = data.draw(torch.Generator().manual_seed(0))
    tokens, targets = tokens.to(device), targets.to(device)[:, kept:]
    states = torch.randn(batch, kept, model.width).to(device)
    with torch.no_grad():
        memory = Memory(states, model.inject(tokens[:, :kept]))
    tokens = tokens[:, kept:]
    return model, lambda: model(tokens, targets, memory)[0].mean()


def sizes(model: str) -> dict[str, Any]:
    """Return the arguments that a file in ``configs/model`` gives to the model."""
    content = yaml.safe_load((CONFIGS / "model" / f"{model}.yaml").read_text(encoding="utf-8"))
    other = ("solver", "gradient", "_target_", "_convert_")
    return {name: value for name, value in content["model"].items() if name not in other}


# As in configs/solver/ignn_forward.yaml and ignn_adjoint.yaml.
_IGNN_FORWARD = FixedPoint(max_evaluations=300, tol=3e-6, stop="absolute", norm="max")
_IGNN_ADJOINT = FixedPoint(max_evaluations=300, tol=1e-4, stop="relative", norm="max")
_GRADIENTS: dict[str, GradientEstimator] = {
    OURS: UnrolledPhantomGradient(steps=5, damping=0.5),
    IMPLICIT: ImplicitGradient(solver=_IGNN_ADJOINT, on_failure="ignore"),
    "our NPG": NeumannPhantomGradient(steps=5, damping=0.5),
}


def epoch_case(root: str, epochs: int) -> Case:
    """Return the case of training on the authors' fold 0 from the same start, a round an epoch."""
    contenders = {name: partial(_epoch_contender, root, g) for name, g in _GRADIENTS.items()}
    return Case(name="IGNN on COX2, epoch, UPG", contenders=contenders, rounds=epochs)


def _epoch_contender(root: str, gradient: GradientEstimator, clock: Clock) -> Contender:
    data = GraphFolds(name="COX2", root=root)
    data.setup()
    torch.manual_seed(42)
    model = GraphClassifier(data.in_channels, data.classes, _IGNN_FORWARD, gradient)
    model.to(clock.device)
    optimizer = torch.optim.Adam(p for p in model.parameters() if p.requires_grad)
    train, test = (
        [GraphBatch(*(part.to(clock.device) for part in batch)) for batch in data.loader(name)]
        for name in ("train", "test")
    )

    def scores(batch: GraphBatch) -> Tensor:
        return model(batch.features, batch.propagation, batch.pooling, propagated=True)  # type: ignore[no-any-return]

    phases = ("forward", "backward", "update")

    def epoch() -> Run:
        seconds = dict.fromkeys(("epoch", *phases), 0.0)
        model.train()
        for batch in train:
            marks = [clock.mark()]
            loss = F.nll_loss(scores(batch), batch.labels)
            marks.append(clock.mark())
            loss.backward()  # type: ignore[no-untyped-call]
            marks.append(clock.mark())
            optimizer.step()
            optimizer.zero_grad()
            model.project_()
            marks.append(clock.mark())
            for phase, span in zip(phases, pairwise(marks), strict=True):
                seconds[phase] += clock.seconds(*span)
        model.eval()
        with torch.no_grad():
            seconds["test"] = clock.time(lambda: [scores(batch) for batch in test])
        seconds["epoch"] = sum(seconds.values())
        return Run(seconds)

    return epoch
