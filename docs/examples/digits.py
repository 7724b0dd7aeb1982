# %% [markdown]
# # A DEQ in twenty lines
#
# scikit-learn's handwritten digits, 8 x 8 pixels, and an implicit model of two linear layers: one puts
# the image into the state, the other is applied until nothing changes any more.

# %%
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from phantomgrad import DEQ, Anderson, UnrolledPhantomGradient


class Cell(nn.Linear):
    def forward(self, z, x):
        return torch.tanh(super().forward(z) + x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 48), nn.Linear(48, 10)
        solver = Anderson(max_evaluations=40, tol=1e-3)
        self.deq = DEQ(weight_norm(Cell(48, 48)), solver, UnrolledPhantomGradient(5, 0.5))

    def forward(self, images):
        z, _ = self.deq(self.encoder(images))
        return self.decoder(z)


# %% [markdown]
# Nothing in the training loop knows that the model is implicit. What a solve needed is in
# `deq.last_solution`, with one entry for each image.

# %%
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 8 - 1
labels = torch.tensor(digits.target)
train, test = torch.randperm(len(labels)).split([1400, 397])

model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
losses, evaluations = [], []
for _ in range(8):
    for batch in train[torch.randperm(len(train))].split(50):
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        evaluations.append(model.deq.last_solution.evaluations.double().mean())

model.eval()
with torch.no_grad():
    accuracy = (model(images[test]).argmax(1) == labels[test]).double().mean().item()
converged = model.deq.last_solution.converged.double().mean().item()
print(f"test accuracy {accuracy:.1%}, converged {converged:.0%}")
assert accuracy > 0.9
assert converged > 0.8

# %%
import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 2.4), layout="constrained")
left.plot(losses)
left.set(xlabel="step", ylabel="training loss")
right.plot(evaluations)
right.set(xlabel="step", ylabel="evaluations of the cell", ylim=(0, None))

# %% [markdown]
# A solve takes about ten evaluations throughout. In other models they grow while the map learns; when
# they reach the budget, the [stabilisers](../stabilisers.md) help.
