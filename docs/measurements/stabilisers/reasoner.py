"""A single-latent reasoner on 4 x 4 Sudoku."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from variants import Training, Variant

from phantomgrad import spectral_radius
from phantomgrad.models import RecursiveReasoner

VARIANTS = (
    Variant("no remedy"),
    Variant("learning rate 0.001", lr=0.001),
    Variant("usual initial weights", usual_weights=True),
    Variant("Jacobian regularisation, weight 1", regularisation=1.0),
    Variant("damped map, w = 0.5", update=0.5),
    Variant("damped iteration, λ = 0.5", damping=0.5),
    Variant("30 steps of pretraining", pretraining=30),
    Variant("UPG, k = 5, λ = 0.5", upg=True),
    Variant("usual initial weights, UPG", usual_weights=True, upg=True),
)
SOLVED = ((0, 1, 2, 3), (2, 3, 0, 1), (1, 0, 3, 2), (3, 2, 1, 0))


def puzzles(count: int) -> tuple[Tensor, Tensor]:
    """Return boards, half of whose cells are empty (0), and their solutions, ``(B, 16)``."""

    def lines() -> Tensor:  # orders of rows or columns: the bands, and within them
        bands, within = torch.rand(count, 2).argsort(1), torch.rand(count, 2, 2).argsort(2)
        return (2 * bands[:, :, None] + within).flatten(1)

    rows, columns, digits = lines(), lines(), torch.rand(count, 4).argsort(1)
    grids = torch.tensor(SOLVED)[rows[:, :, None], columns[:, None, :]].flatten(1)
    solutions = digits.gather(1, grids) + 1
    return solutions.where(torch.rand(count, 16) < 0.5, 0), solutions


def train(variant: Variant, seed: int, steps: int = 100, segments: int = 2) -> dict[str, Any]:
    """Train on random boards, with a step for each of several segments; test on 256."""
    torch.manual_seed(seed)
    model = RecursiveReasoner(
        *(5, 16, variant.solver(), variant.gradient()),
        **{"n": None, "width": 32, "blocks": 1, "multiple": 16, "damping": variant.update},
    )
    if not variant.usual_weights:
        with torch.no_grad():
            for parameter in model.deq.cell.parameters():
                parameter.mul_(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=variant.lr)
    training = Training(model, model.deq, optimizer, variant)
    for step in range(steps):
        state, (boards, solutions) = None, puzzles(32)
        for _ in range(segments):
            if step < variant.pretraining:
                x = model.embed(boards)
                start = model.start(boards) if state is None else state
                state = model.deq.unroll(start, 5, x)
                logits, state = model.output(state), state.detach()
            else:
                logits, _, state = model(boards, state)
            if not training.step(F.cross_entropy(logits.mT, solutions)):
                return training.result(accuracy=0.0)
    model.eval()
    boards, solutions = puzzles(256)
    state = None
    with torch.no_grad():
        for _ in range(segments):
            logits, _, state = model(boards, state)
    score = (logits.argmax(2) == solutions)[boards == 0].double().mean().item()
    x = model.embed(boards[:64]).detach()
    f, start = model.deq.close_over((x,), state[:64])
    z = model.deq.solver.solve(f, start).z
    return training.result(spectral_radius(f, z, iterations=40), accuracy=score)
