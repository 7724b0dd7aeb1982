# %% [markdown]
# # A recursive reasoner on Sudoku
#
# [`RecursiveReasoner`](../api/models.md) is the Tiny Recursive Model: one small network, applied again
# and again to an answer y and a latent z. Here it solves 4 x 4 Sudoku with half of the cells given.

# %%
import torch
from torch.nn import functional as F

from phantomgrad import Steps, UnrolledPhantomGradient
from phantomgrad.models import RecursiveReasoner


def sudoku(count: int, generator: torch.Generator) -> torch.Tensor:
    """Solved 4 x 4 grids: one grid under permutations of digits, rows and columns."""
    base = torch.tensor([[0, 1, 2, 3], [2, 3, 0, 1], [1, 0, 3, 2], [3, 2, 1, 0]])

    def order() -> torch.Tensor:  # of rows or columns: within bands, and the bands
        bands = [2 * b + torch.randperm(2, generator=generator) for b in range(2)]
        return torch.cat([bands[i] for i in torch.randperm(2, generator=generator).tolist()])

    grids = []
    for _ in range(count):
        grid = torch.randperm(4, generator=generator)[base[order()][:, order()]]
        grids.append(grid.flatten())
    return torch.stack(grids)


generator = torch.Generator().manual_seed(0)
labels = sudoku(64 * 30, generator)
given = torch.rand(labels.shape, generator=generator) < 0.5
puzzles = torch.where(given, labels + 1, 0)  # 0 is an empty cell

# %% [markdown]
# A segment is two recursions of two inner steps and one for the answer; the second recursion is on the
# graph. The state of a segment starts the next one, and each segment has its own optimizer step (deep
# supervision).

# %%
torch.manual_seed(0)
model = RecursiveReasoner(
    5, 16, Steps(1), UnrolledPhantomGradient(1, 1.0), n=2, width=48, heads=4, multiple=16
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
losses = []
for step in range(30):
    batch = slice(64 * step, 64 * step + 64)
    state = None
    for _ in range(3):
        logits, _, state = model(puzzles[batch], state)
        loss = F.cross_entropy(logits.mT, labels[batch] + 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(loss.item())

# %% [markdown]
# ## More segments than in training
#
# In evaluation, segments are run one after another: does the answer get better, and does the state settle?

# %%
test = sudoku(256, generator)
shown = torch.rand(test.shape, generator=generator) < 0.5
model.eval()
cells, residuals, state = [], [], None
with torch.no_grad():
    for _ in range(6):
        logits, _, state = model(torch.where(shown, test + 1, 0), state)
        right = logits.argmax(2) == test + 1
        cells.append(right[~shown].double().mean().item())
        residuals.append(model.deq.last_solution.residual.mean().item())
print("empty cells right by segment:", " ".join(f"{share:.0%}" for share in cells))
print("relative residual:           ", " ".join(f"{residual:.2f}" for residual in residuals))
assert cells[-1] > 0.6

# %%
import matplotlib.pyplot as plt

figure, (left, middle, right_axis) = plt.subplots(1, 3, figsize=(8.5, 2.4), layout="constrained")
left.plot(losses)
left.set(xlabel="step", ylabel="training loss")
middle.plot(range(1, 7), cells, marker="o")
middle.set(xlabel="segment", ylabel="empty cells right")
right_axis.plot(range(1, 7), residuals, marker="o")
right_axis.set(xlabel="segment", ylabel="relative residual", ylim=(0, None))

# %% [markdown]
# Does the answer get better? Only up to the three segments of training; after them it slowly gets worse. Does
# the state settle? Yes, its residual keeps falling, but it does not settle at the solution.
#
# `python scripts/train.py experiment=reasoning/sudoku6` trains a model for a minute or two, which solves most
# of its 6 x 6 test puzzles; there, more segments do help ([results](../../results/tables/scaling.md)).
