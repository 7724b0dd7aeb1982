# %% [markdown]
# # A Hugging Face model with an implicit layer
#
# A `PreTrainedModel` around a DEQ: `save_pretrained`, `from_pretrained` and the `Trainer` work as
# for any other model. The configuration holds numbers only, from which the solver and the gradient are
# built, so that it can be written as JSON. It needs
# `pip install "./phantomgrad[examples]"`.

# %%
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

from phantomgrad import DEQ, Anderson, UnrolledPhantomGradient


class ImplicitConfig(PretrainedConfig):
    model_type = "implicit-classifier"

    def __init__(
        self, inputs=16, width=32, labels=2, budget=30, tol=1e-3, steps=5, damping=0.5, **kwargs
    ):
        self.inputs, self.width, self.labels = inputs, width, labels
        self.budget, self.tol, self.steps, self.damping = budget, tol, steps, damping
        super().__init__(**kwargs)


class Cell(nn.Linear):
    def forward(self, z, x):
        return torch.tanh(super().forward(z) + x)


class ImplicitClassifier(PreTrainedModel):
    config_class = ImplicitConfig

    def __init__(self, config):
        super().__init__(config)
        self.encoder = nn.Linear(config.inputs, config.width)
        self.deq = DEQ(
            weight_norm(Cell(config.width, config.width)),
            Anderson(max_evaluations=config.budget, tol=config.tol),
            UnrolledPhantomGradient(config.steps, config.damping),
        )
        self.decoder = nn.Linear(config.width, config.labels)
        self.post_init()

    def _init_weights(self, module):
        pass  # keep PyTorch's initial weights

    def forward(self, inputs, labels=None):
        z, _ = self.deq(self.encoder(inputs))
        logits = self.decoder(z)
        output = {"logits": logits}
        return output if labels is None else {"loss": F.cross_entropy(logits, labels), **output}


# %% [markdown]
# ## Train, save, load
#
# The label is whether two halves of the input point the same way.

# %%
torch.manual_seed(0)
inputs = torch.randn(1024, 16)
labels = (inputs[:, :8].sum(1) * inputs[:, 8:].sum(1) > 0).long()
data = [{"inputs": x, "labels": y} for x, y in zip(inputs, labels, strict=True)]

model = ImplicitClassifier(ImplicitConfig())
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=12,
        per_device_train_batch_size=64,
        learning_rate=1e-2,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    Trainer(model, arguments, train_dataset=data[:824]).train()
    model.save_pretrained(folder)
    loaded = ImplicitClassifier.from_pretrained(folder)

# %%
model.eval(), loaded.eval()
with torch.no_grad():
    logits = loaded(inputs[824:])["logits"]
    assert torch.equal(logits, model(inputs[824:])["logits"])
accuracy = (logits.argmax(1) == labels[824:]).double().mean().item()
print(f"test accuracy {accuracy:.1%}; loaded with {loaded.config.budget} evaluations at most")
assert accuracy > 0.8

# %% [markdown]
# A model that has been loaded can be given another solver: `loaded.deq.solver = Broyden()`.
