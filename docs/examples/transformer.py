# %% [markdown]
# # A transformer whose blocks are one DEQ
#
# A causal transformer from scratch, with PyTorch's modules alone. Its only block is applied to
# convergence instead of a dozen blocks once each. The task is to continue a repeated random pattern:
# the model has to find where it saw the current token before.

# %%
import torch
from torch import nn
from torch.nn import functional as F

from phantomgrad import DEQ, Anderson, UnrolledPhantomGradient


class Block(nn.Module):
    """Post-norm attention and feed-forward layers; the input is added to the state."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, z, x):
        batch, length, _ = z.shape
        qkv = self.qkv(z + x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*qkv, is_causal=True)
        y = self.norms[0](x + z + self.out(attended.transpose(1, 2).reshape(z.shape)))
        return self.norms[1](y + self.mlp(y))


class Transformer(nn.Module):
    def __init__(self, tokens: int, length: int, width: int = 48) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(length, width)
        solver = Anderson(max_evaluations=12, tol=1e-2)
        self.deq = DEQ(Block(width, 4), solver, UnrolledPhantomGradient(4, 0.6))
        self.head = nn.Linear(width, tokens)

    def forward(self, sequence):
        x = self.tokens(sequence) + self.positions.weight[: sequence.shape[1]]
        z, solution = self.deq(x)
        return self.head(z), solution


# %%
def patterns(count: int, period: int = 4, length: int = 16, tokens: int = 8) -> torch.Tensor:
    return torch.randint(tokens, (count, period)).repeat(1, length // period)


torch.manual_seed(0)
model = Transformer(tokens=8, length=16)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
losses, converged = [], []
for _ in range(150):
    sequence = patterns(32)
    logits, solution = model(sequence[:, :-1])
    loss = F.cross_entropy(logits.mT, sequence[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    converged.append(solution.converged.double().mean().item())

model.eval()
with torch.no_grad():
    sequence = patterns(200)
    right = model(sequence[:, :-1])[0].argmax(2) == sequence[:, 1:]
by_position = right.double().mean(0)
print(f"accuracy from the second period on: {by_position[4:].mean():.1%}")
assert by_position[4:].mean() > 0.9

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, 3, figsize=(8.5, 2.4), layout="constrained")
axes[0].plot(losses)
axes[0].set(xlabel="step", ylabel="training loss")
axes[1].plot(converged)
axes[1].set(xlabel="step", ylabel="share that converged", ylim=(0, 1.05))
axes[2].bar(range(1, 16), by_position)
axes[2].set(xlabel="position", ylabel="accuracy")

# %% [markdown]
# The first period is random, so its tokens cannot be predicted. Relative positions, a memory of
# earlier segments and adaptive embeddings are in [`TransformerLM`](../api/models.md).
