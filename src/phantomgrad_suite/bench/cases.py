"""The cases: solves of cheap maps, and training steps (forward and backward) of several models."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
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
from phantomgrad.solvers import Anderson, Broyden, FixedPoint, Map, Solver
from phantomgrad_suite.bench.contest import IMPLICIT, OURS, PEER, Case, Contender, Run
from phantomgrad_suite.bench.peer import HOISTED, PeerDEQ, PeerSolver, use_peer
from phantomgrad_suite.data import WikiText103
from phantomgrad_suite.data.graphs.tu import GraphBatch, GraphFolds
from phantomgrad_suite.jobs.compose import CONFIGS
from phantomgrad_suite.studies.meters import Clock, Watch

Step = tuple[nn.Module, Callable[[], Tensor]]  # a model, and a call that computes its loss
Build = Callable[[Solver, GradientEstimator, torch.device], Step]

# MDEQ-Tiny on CIFAR-10, a small transformer, a batch of graphs in IGNN, and a small state.
SHAPES = ((64, 30720), (128, 64, 64), (1, 5354, 64), (512, 128))
_SOLVERS = {
    "fixed point": FixedPoint(tol=0),
    "Anderson": Anderson(tol=0, memory=6),
    "Broyden": Broyden(tol=0),
}


def solver_cases(shapes: Sequence[tuple[int, ...]] = SHAPES, evaluations: int = 23) -> list[Case]:
    """Return every solver on every state, from zero until its budget is spent."""
    cases = []
    for shape in shapes:
        for name, solver in _SOLVERS.items():
            ours = replace(solver, max_evaluations=evaluations)
            contenders = {
                OURS: partial(_solve, ours, shape),
                PEER: partial(_solve, PeerSolver(ours), shape),
            }
            cases.append(Case(f"{name} {shape}", contenders))
    return cases


def _solve(solver: Any, shape: tuple[int, ...], clock: Clock) -> Contender:
    watch = Watch(clock)
    solve = watch.over(solver).solve
    f, z0 = elementwise_map(shape, clock.device), torch.zeros(shape, device=clock.device)

    @torch.no_grad()
    def run() -> Run:
        solve(f, z0)
        solves = watch.take()
        return Run({"outside f": solves.outside, "total": solves.seconds}, solves.evaluations)

    return run


def elementwise_map(shape: tuple[int, ...], device: torch.device) -> Map:
    """Return ``x + c tanh z``, cheap; c in (-0.9, 0.9) lets no solver converge in its budget."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(device)
    c = torch.rand(shape, generator=generator).mul_(1.8).sub_(0.9).to(device)
    return lambda z: torch.addcmul(x, c, z.tanh())


def training_cases() -> list[Case]:
    """Return the steps of all models with the paper's budgets and k."""
    cases = []
    for size, batch, budget in (("tiny", 64, 23), ("large", 8, 19)):
        cases += step_cases(
            f"MDEQ-{size.capitalize()}, {batch} images",
            partial(mdeq, size, batch),
            solver=Broyden(max_evaluations=budget, tol=0),
            adjoint=Broyden(max_evaluations=budget, tol=0),
        )
    cases += step_cases(
        "TransformerLM, 16 x 64 words",
        partial(transformer, 16, 64),
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
        if hoisted:
            contenders[HOISTED] = partial(contender, make, adapt=use_peer)
        cases.append(Case(f"{name}, {label}", contenders))
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
        step = clock.seconds(start, end)
        seconds = {
            "step": step,
            "forward": clock.seconds(start, middle),
            "backward": clock.seconds(middle, end),
            "step in f": step - watch.take().outside,
        }
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
    """Return the step of Table 3's PostLN in its CPU edition, on random words and a full memory."""
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


def graph_case(root: str, epochs: int = 100) -> Case:
    """Return the step of IGNN on 128 graphs of COX2 after ``epochs`` of training on fold 0.

    (With untrained weights the solves would need fewer evaluations.)
    """
    makes = {name: partial(_graphs, root, epochs, g) for name, g in _GRADIENTS.items()}
    contenders = {name: partial(contender, make) for name, make in makes.items()}
    return Case("IGNN on COX2, 128 graphs, UPG", contenders)


def _graphs(root: str, epochs: int, gradient: GradientEstimator, device: torch.device) -> Step:
    data = GraphFolds(name="COX2", root=root)
    data.setup()
    torch.manual_seed(42)
    model = GraphClassifier(data.in_channels, data.classes, _IGNN_FORWARD, gradient).to(device)
    batches = [GraphBatch(*(x.to(device) for x in batch)) for batch in data.loader("train")]

    def loss(batch: GraphBatch) -> Tensor:
        scores = model(batch.features, batch.propagation, batch.pooling, propagated=True)
        return F.nll_loss(scores, batch.labels)

    optimizer = torch.optim.Adam(p for p in model.parameters() if p.requires_grad)
    for batch in batches * epochs:
        optimizer.zero_grad()
        loss(batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model.project_()
    return model, lambda: loss(batches[0])
