# %% [markdown]
# # A graph model with an implicit layer
#
# An implicit graph layer passes messages until nothing changes: its receptive field is the whole
# graph, however many steps away the information is. The batches are those of PyTorch Geometric.
#
# The task cannot be solved by looking at neighbours: the label of a ring is a mark on one of its
# nodes, and every node has to know it.

# %%
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from phantomgrad import FixedPoint, UnrolledPhantomGradient
from phantomgrad.models import ImplicitGraphLayer


def ring(nodes: int, label: int) -> Data:
    ahead = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(-1)])
    features = torch.zeros(nodes, 2)
    features[0, label] = 1.0
    return Data(
        x=features, edge_index=torch.cat([ahead, ahead.flip(0)], 1), y=torch.full((nodes,), label)
    )


generator = torch.Generator().manual_seed(0)
sizes = torch.randint(6, 13, (120,), generator=generator).tolist()
rings = [ring(nodes, i % 2) for i, nodes in enumerate(sizes)]
train, test = (DataLoader(part, batch_size=20, shuffle=True) for part in (rings[:80], rings[80:]))


# %% [markdown]
# The layer takes `edge_index` as it is. A batch of PyG is one graph of several components, so
# the loader needs no change. `project_()` keeps the layer well-posed: call it after each step.


# %%
class RingModel(nn.Module):
    def __init__(self):
        super().__init__()
        solver = FixedPoint(max_evaluations=100, tol=1e-4)
        self.layer = ImplicitGraphLayer(2, 16, solver, UnrolledPhantomGradient(5, 0.8), kappa=0.95)
        self.decoder = nn.Linear(16, 2)

    def forward(self, data):
        z = self.layer(data.x, data.edge_index)
        return self.decoder(F.normalize(z, dim=1))


torch.manual_seed(0)
model = RingModel()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
losses, evaluations = [], []
for _ in range(30):
    for data in train:
        loss = F.cross_entropy(model(data), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.layer.project_()
        losses.append(loss.item())
        evaluations.append(int(model.layer.deq.last_solution.evaluations))

model.eval()
with torch.no_grad():
    right = torch.cat([model(data).argmax(1) == data.y for data in test])
print(f"test accuracy over nodes {right.double().mean():.1%}, {evaluations[-1]} evaluations")
assert right.double().mean() > 0.9

# %%
import matplotlib.pyplot as plt

figure, (left, middle) = plt.subplots(1, 2, figsize=(7, 2.4), layout="constrained")
left.plot(losses)
left.set(xlabel="step", ylabel="training loss")
middle.plot(evaluations)
middle.set(xlabel="step", ylabel="evaluations", ylim=(0, None))
