"""Hooks at the end of a pass."""

import copy
import pickle

import torch
from problems import TanhCell

import phantomgrad as pg

UPG = pg.UnrolledPhantomGradient(2, 0.5)


def test_a_hook_sees_the_map_and_the_equilibrium_of_each_pass():
    layer, x, seen = pg.DEQ(TanhCell(), pg.Anderson(), UPG), torch.randn(3, 4), []
    handle = layer.register_pass_hook(lambda *each: seen.append(each))
    state, solution = layer(x)
    states, _ = layer(x, record_at=(1, 2))
    assert len(seen) == 2
    for (owner, f, z, attached), expected in zip(seen, (state, states[-1]), strict=True):
        assert owner is layer
        assert torch.equal(z, solution.z)
        assert not z.requires_grad
        assert torch.equal(attached, expected)
        assert attached.requires_grad
        torch.testing.assert_close(f(z), layer.cell(z, x))
    with torch.no_grad():
        layer(x)
    assert len(seen) == 3
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer.cpu()))):
        twin(x)
    handle.remove()
    layer(x)
    assert len(seen) == 3
