# %% [markdown]
# # A language model that writes
#
# [`TransformerLM`](../api/models.md) is the DEQ-Transformer: one block, applied to convergence, with a memory of
# earlier segments. Here it learns a sentence letter by letter, and then continues it.

# %%
import torch

from phantomgrad import Anderson, UnrolledPhantomGradient
from phantomgrad.models import TransformerLM

text = "to be or not to be, that is the question. " * 48
letters = sorted(set(text))
codes = torch.tensor([letters.index(letter) for letter in text]).view(8, -1)  # eight streams

torch.manual_seed(0)
model = TransformerLM(
    len(letters),
    Anderson(max_evaluations=12, tol=1e-2),
    UnrolledPhantomGradient(5, 0.5),
    width=32,
    heads=2,
    inner=64,
    cutoffs=(),
    memory_length=24,
    dropout=0.0,
    embedding_std=0.1,
)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(letters)} letters")

# %% [markdown]
# The model takes a segment, the letter after each of its letters, and the memory. It returns a loss for
# each letter, and the memory for the next segment.

# %%
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
history = []
for _ in range(32):
    memory = None
    for start in range(0, codes.shape[1] - 24, 24):
        segment = codes[:, start : start + 25]
        losses, memory = model(segment[:, :-1], segment[:, 1:], memory)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        history.append(losses.mean().item())

model.eval()
continued = model.generate(codes[:1, :24], 18, temperature=0)[0]
written = "".join(letters[code] for code in continued)
print(f"{text[:24]!r} continues {written!r}")
assert written == text[24:42]

# %%
import matplotlib.pyplot as plt

figure, axis = plt.subplots(figsize=(4, 2.4), layout="constrained")
axis.plot(history)
axis.set(xlabel="step", ylabel="nats per letter", ylim=(0, None))

# %% [markdown]
# Has it learned the sentence? Yes, word for word; the peaks on the way show how small a model this is. `temperature=1.0`
# draws the letters instead of taking the likeliest.
