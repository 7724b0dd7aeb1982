# %% [markdown]
# # State estimation: a regression whose answer is an equilibrium
#
# Sensors measure a state through a known function, `y = h(s) + noise`; half of them are bad, and nobody says
# which. The answer is the state at which the weighted errors of all sensors balance,
# `K (y - h(z)) = 0`: the equilibrium of `z + K (y - h(z))`. The gain `K` is learned.

# %%
import torch
from torch import nn
from torch.nn import functional as F

from phantomgrad import DEQ, Anderson, ImplicitGradient

STATES, SENSORS = 4, 16
generator = torch.Generator().manual_seed(0)
mixing = torch.randn(SENSORS, STATES, generator=generator) / STATES**0.5
noise = torch.tensor([0.02, 0.5]).repeat(SENSORS // 2)  # good and bad sensors take turns


def measured(s):
    return s @ mixing.T + 0.5 * torch.sin(s @ mixing.T)


def samples(count):
    s = torch.randn(count, STATES, generator=generator)
    return s, measured(s) + noise * torch.randn(count, SENSORS, generator=generator)


class Balance(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(0.1 * mixing.T.clone())  # all sensors alike: least squares

    def forward(self, z, y):
        return z + (y - measured(z)) @ self.gain.T


# %% [markdown]
# The loss is the squared error of the equilibrium, written as for any other layer. Nothing has to be
# detached, and no further application of the cell is needed: the layer takes care of both.

# %%
layer = DEQ(Balance(), Anderson(max_evaluations=60, tol=1e-5), ImplicitGradient())
optimizer = torch.optim.Adam(layer.parameters(), lr=3e-3)
test, readings = samples(500)


def error():
    with torch.no_grad():
        z, solution = layer(readings, z0=torch.zeros_like(test))
    return (z - test).square().mean().sqrt().item(), solution.converged.double().mean().item()


before, _ = error()
losses = []
for _ in range(150):
    s, y = samples(64)
    z, _ = layer(y, z0=torch.zeros_like(s))
    loss = F.mse_loss(z, s)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
after, converged = error()
print(f"error of the state: least squares {before:.3f}, learned {after:.3f}")
print(f"test samples that converged: {converged:.0%}")
assert after < 0.5 * before

# %%
import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.4), layout="constrained")
left.semilogy(losses)
left.set(xlabel="step", ylabel="squared error")
weights = layer.cell.gain.detach().norm(dim=0) / mixing.norm(dim=1)
for label, part in (("good", slice(0, None, 2)), ("bad", slice(1, None, 2))):
    right.bar(torch.arange(SENSORS)[part], weights[part], label=label)
right.set(xlabel="sensor", ylabel="weight in K")
right.legend()

# %% [markdown]
# Did it find the bad sensors? Yes: their weights fall, and the error of the state falls with them.
