"""The ways to get a second model: copies, pickles, files, and state dicts."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import torch
from torch import Tensor, nn


def assert_twins(build: Callable[[], nn.Module], loss: Callable[[nn.Module], Tensor]) -> None:
    """Every twin of a used model computes the same with parameters of its own.

    Making it draws no random number.
    """
    model = build()
    loss(model).backward()
    model.zero_grad()
    empty, before = build(), torch.random.get_rng_state()
    empty.load_state_dict(model.state_dict(), strict=True)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    twins = [empty, loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    assert torch.equal(torch.random.get_rng_state(), before)
    loss(model).backward()
    for twin in twins:
        loss(twin).backward()
        pairs = zip(model.named_parameters(), twin.named_parameters(), strict=True)
        for (name, ours), (twin_name, theirs) in pairs:
            assert name == twin_name
            assert torch.equal(ours, theirs)
            assert ours.data_ptr() != theirs.data_ptr()
            assert torch.equal(ours.grad, theirs.grad)
