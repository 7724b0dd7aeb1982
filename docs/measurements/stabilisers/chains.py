"""IGNN on Chains: one implicit layer that is not projected."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from variants import Training, Variant

from phantomgrad import spectral_radius
from phantomgrad.models import NodeClassifier
from phantomgrad_suite.data.graphs.chains import make_chains

VARIANTS = (
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


def train(variant: Variant, seed: int, epochs: int = 100) -> dict[str, Any]:
    """Train IGNN on the Chains graph: 20 labelled nodes, 200 for the test."""
    torch.manual_seed(seed)
    batch = make_chains(20, 10, 100, 0.0, 42)
    kappa = variant.bound or 0.9
    model = NodeClassifier(100, 2, variant.solver(), variant.gradient(), kappa=kappa)
    deq = model.layer.deq
    if variant.bound is None:
        nn.init.uniform_(model.layer.weight, -0.25, 0.25)  # as before its projection
    optimizer = torch.optim.Adam(model.parameters(), lr=variant.lr, weight_decay=5e-4)
    training = Training(model, deq, optimizer, variant)
    masks = batch.masks
    for _ in range(epochs):
        out = model(batch.features, batch.propagation)
        loss = F.nll_loss(out[masks["train"]], batch.labels[masks["train"]])
        if not training.step(loss):
            return training.result(accuracy=0.0)
        if variant.bound is not None:
            model.project_()
    model.eval()
    with torch.no_grad():
        right = model(batch.features, batch.propagation).argmax(1) == batch.labels
        injection = batch.propagation(batch.features @ model.layer.omega.mT)
    f, start = deq.close_over((injection, batch.propagation), torch.zeros_like(injection))
    z = deq.solver.solve(f, start).z
    score = right[masks["test"]].double().mean().item()
    return training.result(spectral_radius(f, z, iterations=100), accuracy=score)
