"""The ways a model gets a twin: copies, pickles, files, and weights loaded into another one."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn


def twins(empty: Callable[[nn.Module], nn.Module]) -> pytest.MarkDecorator:
    """Give a test every way as ``twin_of``; ``empty`` makes a model like another one."""

    def rebuilt(model: nn.Module) -> nn.Module:
        twin = empty(model)
        twin.load_state_dict(model.state_dict(), strict=True)
        return twin

    return pytest.mark.parametrize(
        "twin_of",
        [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved_and_loaded, rebuilt],
        ids=["deepcopy", "pickle", "torch.save", "state_dict"],
    )


def saved_and_loaded(model: nn.Module) -> nn.Module:
    """Return the model that ``torch.load`` makes of what ``torch.save`` wrote."""
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)  # type: ignore[no-any-return]
