"""The digits: two linear layers around a ReLU."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from variants import Training, Variant

from phantomgrad import DEQ, spectral_radius

VARIANTS = (
    Variant("no remedy"),
    Variant("learning rate 0.001", lr=0.001),
    Variant("initial weights of PyTorch", usual_weights=True),
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


class Cell(nn.Module):
    """Two linear layers around a ReLU, with a layer normalisation before, after, or not at all."""

    def __init__(self, variant: Variant, width: int = 64) -> None:
        super().__init__()
        self.variant = variant
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        if not variant.usual_weights:
            with torch.no_grad():
                for layer in (self.first, self.second):
                    layer.weight.mul_(3)
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

    def forward(self, images: Tensor, unrolled: bool = False) -> Tensor:
        x = self.stem(images)
        return self.output(
            self.deq.unroll(torch.zeros_like(x), 5, x) if unrolled else self.deq(x).z
        )


def train(variant: Variant, seed: int, epochs: int = 4) -> dict[str, Any]:
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
    training = Training(model, model.deq, optimizer, variant)
    for epoch in range(epochs):
        for rows in torch.randperm(len(train[0])).split(64):
            logits = model(train[0][rows], unrolled=epoch < variant.pretraining)
            loss = F.cross_entropy(logits, train[1][rows])
            if not training.step(loss):
                return training.result(accuracy=0.0)
            schedule.step()
            model.deq.cell.project_()
    model.eval()
    with torch.no_grad():
        score = (model(test[0]).argmax(1) == test[1]).double().mean().item()
    x = model.stem(test[0][:64]).detach()
    f, start = model.deq.close_over((x,), torch.zeros_like(x))
    z = model.deq.solver.solve(f, start).z
    return training.result(spectral_radius(f, z, iterations=40), accuracy=score)
