"""The ways to get a second model: copies, pickles, files, and state dicts."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

Twin = Callable[[nn.Module], nn.Module]


def twins(empty: Twin) -> pytest.MarkDecorator:
    """Parametrize a test by ``twin_of``; ``empty`` makes a model of the same kind."""

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
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)  # type: ignore[no-any-return]


def assert_twin(
    model: nn.Module, twin_of: Twin, loss: Callable[[nn.Module], Tensor], used: bool
) -> None:
    """A twin computes the same with parameters of its own, and making it draws no random number."""
    if used:
        loss(model).backward()
        model.zero_grad()
    state = torch.random.get_rng_state()
    twin = twin_of(model)
    assert twin_of.__name__ == "rebuilt" or torch.equal(torch.random.get_rng_state(), state)
    pairs = zip(model.named_parameters(), twin.named_parameters(), strict=True)
    for (name, ours), (twin_name, theirs) in pairs:
        assert name == twin_name
        assert torch.equal(ours, theirs)
        assert ours.data_ptr() != theirs.data_ptr()
    for one in (model, twin):
        loss(one).backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
