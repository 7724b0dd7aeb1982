"""Measure the remedies of `docs/stabilisers.md` on the digits and on Chains, ten seeds each.

python docs/measurements/stabilisers.py run    # trains what stabilisers.json lacks (an hour of a core)
python docs/measurements/stabilisers.py table  # writes the tables of the page from it
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad import (
    DEQ,
    Anderson,
    FixedPoint,
    GradientEstimator,
    ImplicitGradient,
    Solver,
    UnrolledPhantomGradient,
    jacobian_regularizer,
    spectral_radius,
)
from phantomgrad.models import NodeClassifier
from phantomgrad_suite.data.graphs.chains import make_chains

HERE = Path(__file__).parent
RECORDS, PAGE = HERE / "stabilisers.json", HERE.parent / "stabilisers.md"
SEEDS = 10
FAILED = 0.9  # a run with a lower test accuracy, or one that met a number that is not finite


@dataclass(frozen=True)
class Variant:
    """One row: a model and how it is trained. The defaults are without any remedy."""

    name: str
    norm: str = "none"
    bound: float | None = None
    weight_norm: bool = False
    regularisation: float = 0.0
    pretraining: int = 0
    budget: int = 40
    damping: float | None = None  # of fixed-point iteration in the place of Anderson
    upg: bool = False
    lr: float = 0.01
    gain: float = 3.0  # of the initial weights, over PyTorch's

    def solver(self) -> Solver:
        if self.damping is not None:
            return FixedPoint(max_evaluations=self.budget, tol=1e-3, damping=self.damping)
        return Anderson(max_evaluations=self.budget, tol=1e-3)

    def gradient(self) -> GradientEstimator:
        if self.upg:
            return UnrolledPhantomGradient(steps=5, damping=0.5)
        return ImplicitGradient(solver=self.solver(), on_failure="ignore")


DIGITS = (
    Variant("no remedy"),
    Variant("learning rate 0.001", lr=0.001),
    Variant("initial weights of PyTorch", gain=1.0),
    Variant("post-norm", norm="post"),
    Variant("pre-norm", norm="pre"),
    Variant("weight normalisation", weight_norm=True),
    Variant("weights bounded, ‖W‖₂ ≤ 0.7", bound=0.7),
    Variant("post-norm, weights bounded", norm="post", bound=0.7),
    Variant("Jacobian regularisation, weight 1", regularisation=1.0),
    Variant("damped iteration, λ = 0.5", damping=0.5),
    Variant("budget of 120 evaluations", budget=120),
    Variant("two epochs of pretraining", pretraining=2),
    Variant("UPG, k = 5, λ = 0.5", upg=True),
    Variant("post-norm, UPG", norm="post", upg=True),
)
CHAINS = (
    Variant("no remedy"),
    Variant("learning rate 0.001", lr=0.001),
    Variant("projection, κ = 0.9", bound=0.9),
    Variant("projection, κ = 0.7", bound=0.7),
    Variant("Jacobian regularisation, weight 1", regularisation=1.0),
    Variant("Jacobian regularisation, weight 10", regularisation=10.0),
    Variant("damped iteration, λ = 0.5", damping=0.5),
    Variant("budget of 300 evaluations", budget=300),
    Variant("UPG, k = 5, λ = 0.5", upg=True),
)


class Cell(nn.Module):
    """Two linear layers around a ReLU, with a layer normalisation before, after, or not at all."""

    def __init__(self, variant: Variant, width: int = 64) -> None:
        super().__init__()
        self.variant = variant
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        with torch.no_grad():
            for layer in (self.first, self.second):
                layer.weight.mul_(variant.gain)
        if variant.weight_norm:
            weight_norm(self.first), weight_norm(self.second)
        self.project_()

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        start = self.norm(z) if self.variant.norm == "pre" else z
        out = F.relu(x + self.second(F.relu(self.first(start))))
        return self.norm(out) if self.variant.norm == "post" else out

    @torch.no_grad()
    def project_(self) -> None:
        if self.variant.bound is not None:
            for layer in (self.first, self.second):
                size = torch.linalg.matrix_norm(layer.weight, ord=2)
                layer.weight.mul_((self.variant.bound / size).clamp(max=1))


class Classifier(nn.Module):
    """A linear layer, the equilibrium, a linear layer."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.stem = nn.Linear(64, 64)
        self.deq = DEQ(Cell(variant), variant.solver(), variant.gradient())
        self.output = nn.Linear(64, 10)
        if variant.regularisation:
            self.deq.penalty = lambda f, z, _: jacobian_regularizer(f, z)

    def forward(self, images: Tensor, unrolled: bool = False) -> Tensor:
        x = self.stem(images)
        return self.output(
            self.deq.unroll(torch.zeros_like(x), 5, x) if unrolled else self.deq(x).z
        )


def digits(variant: Variant, seed: int, epochs: int = 4) -> dict[str, Any]:
    """Train on 1,297 digits, test on 500."""
    torch.manual_seed(seed)
    data = load_digits()
    order = torch.randperm(len(data.target))
    images = torch.tensor(data.data, dtype=torch.float32)[order] / 8 - 1
    labels = torch.tensor(data.target)[order]
    train, test = (images[:-500], labels[:-500]), (images[-500:], labels[-500:])
    model = Classifier(variant)
    optimizer = torch.optim.AdamW(model.parameters(), lr=variant.lr, weight_decay=1e-3)
    steps = math.ceil(len(train[0]) / 64) * epochs
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    health = Health(model.deq)
    for epoch in range(epochs):
        for rows in torch.randperm(len(train[0])).split(64):
            logits = model(train[0][rows], unrolled=epoch < variant.pretraining)
            loss = F.cross_entropy(logits, train[1][rows])
            if model.deq.last_penalty is not None and epoch >= variant.pretraining:
                loss = loss + variant.regularisation * model.deq.last_penalty
            if not health.step(loss, optimizer, model):
                return health.result(0.0)
            schedule.step()
            model.deq.cell.project_()
    model.eval()
    with torch.no_grad():
        score = (model(test[0]).argmax(1) == test[1]).double().mean().item()
    x = model.stem(test[0][:64]).detach()
    f, start, _ = model.deq.close_over((x,), torch.zeros_like(x))
    z = model.deq.solver.solve(f, start).z
    return health.result(score, spectral_radius(f, z, iterations=40))


def chains(variant: Variant, seed: int, epochs: int = 100) -> dict[str, Any]:
    """Train IGNN on the Chains graph: 20 labelled nodes, 200 for the test."""
    torch.manual_seed(seed)
    batch = make_chains(20, 10, 100, 0.0, 42)
    kappa = variant.bound or 0.9
    model = NodeClassifier(100, 2, variant.solver(), variant.gradient(), kappa=kappa)
    deq = model.layer.deq
    if variant.bound is None:
        nn.init.uniform_(model.layer.weight, -0.25, 0.25)  # as before its projection
    if variant.regularisation:
        deq.penalty = lambda f, z, _: jacobian_regularizer(f, z)
    optimizer = torch.optim.Adam(model.parameters(), lr=variant.lr, weight_decay=5e-4)
    health = Health(deq)
    masks = batch.masks
    for _ in range(epochs):
        out = model(batch.features, batch.propagation)
        loss = F.nll_loss(out[masks["train"]], batch.labels[masks["train"]])
        if deq.last_penalty is not None:
            loss = loss + variant.regularisation * deq.last_penalty
        if not health.step(loss, optimizer, model):
            return health.result(0.0)
        if variant.bound is not None:
            model.project_()
    model.eval()
    with torch.no_grad():
        right = model(batch.features, batch.propagation).argmax(1) == batch.labels
        injection = batch.propagation(batch.features @ model.layer.omega.mT)
    f, start, _ = deq.close_over((injection, batch.propagation), torch.zeros_like(injection))
    z = deq.solver.solve(f, start).z
    score = right[masks["test"]].double().mean().item()
    return health.result(score, spectral_radius(f, z, iterations=100))


class Health:
    """What is counted while a model trains."""

    def __init__(self, deq: DEQ) -> None:
        self.deq, self.converged, self.evaluations, self.adjoint = deq, [], [], []

    def step(self, loss: Tensor, optimizer: torch.optim.Optimizer, model: nn.Module) -> bool:
        """Make an optimizer step; return whether loss and gradient are finite."""
        optimizer.zero_grad()
        solution = self.deq.last_solution
        if solution is not None:
            self.converged.append(solution.converged.double().mean().item())
            self.evaluations.append(solution.evaluations.double().mean().item())
        if not loss.isfinite():
            return False
        loss.backward()
        if self.deq.last_adjoint is not None:
            self.adjoint.append(self.deq.last_adjoint.evaluations.double().mean().item())
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        if not all(g.isfinite().all() for g in grads):
            return False
        optimizer.step()
        return True

    def result(self, score: float, radius: Tensor | None = None) -> dict[str, Any]:
        """Return the counts; a run that met a number that is not finite has no radius."""
        return {
            "finished": radius is not None,
            "accuracy": round(score, 4),
            "converged": round(mean(self.converged), 4),
            "evaluations": round(mean(self.evaluations), 2),
            "adjoint_evaluations": round(mean(self.adjoint), 2),
            "radius": None if radius is None else round(radius.max().item(), 3),
            "steps": len(self.converged),
        }


def mean(values: list[float]) -> float:
    """Return the mean, 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def run() -> None:
    """Train what the records lack, seed by seed, and write them after each run."""
    torch.set_num_threads(1)
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    done = {(r["setting"], r["variant"], r["seed"]) for r in records}
    for seed in range(SEEDS):
        for train, variants in ((chains, CHAINS), (digits, DIGITS)):
            for variant in variants:
                key = {"setting": train.__name__, "variant": variant.name, "seed": seed}
                if tuple(key.values()) in done:
                    continue
                records.append(key | train(variant, seed))
                lines = ",\n".join(json.dumps(r, ensure_ascii=False) for r in records)
                RECORDS.write_text(f"[\n{lines}\n]\n")


def table(setting: str, variants: tuple[Variant, ...]) -> str:
    """Return the table of one setting in Markdown."""
    records = json.loads(RECORDS.read_text())
    lines = [
        "| Remedy | Failed seeds | Test accuracy | Converged | Evaluations | of the adjoint | Radius |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for variant in variants:
        runs = [r for r in records if (r["setting"], r["variant"]) == (setting, variant.name)]
        failed = sum(not r["finished"] or r["accuracy"] < FAILED for r in runs)
        accuracy, converged = (median([r[k] for r in runs]) for k in ("accuracy", "converged"))
        forward, adjoint = (median([r[f"{k}evaluations"] for r in runs]) for k in ("", "adjoint_"))
        radius = median([math.inf if r["radius"] is None else r["radius"] for r in runs])
        lines.append(
            f"| {variant.name} | {failed} of {len(runs)} | {100 * accuracy:.1f} % | "
            f"{100 * converged:.0f} % | {forward:.1f} | {f'{adjoint:.1f}' if adjoint else '—'} | "
            f"{f'{radius:.2f}' if math.isfinite(radius) else '—'} |"
        )
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """Return the page with its two tables made anew."""
    for setting, variants in (("digits", DIGITS), ("chains", CHAINS)):
        start, end = f"<!-- table: {setting} -->\n", "<!-- end -->"
        before, found, rest = page.partition(start)
        page = f"{before}{found}{table(setting, variants)}\n{rest[rest.index(end) :]}"
    return page


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
    elif sys.argv[1:] == ["table"]:
        PAGE.write_text(with_tables(PAGE.read_text()))
    else:
        sys.exit(__doc__)
