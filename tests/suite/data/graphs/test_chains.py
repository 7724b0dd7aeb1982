"""The Chains graphs against the description of their generator."""

import numpy as np
import torch

from phantomgrad_suite.data.graphs.chains import make_chains

CHAINS, LENGTH, FEATURES = 40, 10, 100


def test_only_the_first_node_of_a_chain_knows_its_class():
    batch = make_chains(20, LENGTH, FEATURES, noise=0.0, seed=42)
    labels = batch.labels.view(CHAINS, LENGTH)
    assert torch.equal(labels[:, 0], torch.arange(2).repeat_interleave(20))
    assert (labels == labels[:, :1]).all()
    features = batch.features.view(CHAINS, LENGTH, FEATURES)
    assert torch.equal(features[:, 0].argmax(dim=1), labels[:, 0])
    assert torch.equal(features[:, 0].sum(dim=1), torch.ones(CHAINS, dtype=torch.float32))
    assert features[:, 1:].abs().max() == 0
    assert features.dtype == torch.float32


def test_split_is_the_official_one():
    """numpy's RandomState draws the features first, then shuffles all nodes."""
    rng = np.random.RandomState(42)
    rng.uniform(-0.1, 0.1, size=(400, FEATURES))
    order = np.arange(400)
    rng.shuffle(order)
    masks = make_chains(20, LENGTH, FEATURES, noise=0.1, seed=42).masks
    parts = {"train": order[:20], "validation": order[20:120], "test": order[120:320]}
    for name, part in parts.items():
        assert masks[name].nonzero().squeeze(1).tolist() == sorted(part.tolist())
    assert torch.stack(list(masks.values())).sum(dim=0).max() == 1


def test_messages_run_along_the_chain():
    """Node i + 1 receives from node i; weights as the normalisation by row sums gives them."""
    p = make_chains(20, LENGTH, FEATURES, noise=0.0, seed=42).propagation.to_dense()
    chain = p[:LENGTH, :LENGTH].double()
    half = torch.full((LENGTH,), 0.5)
    expected = half.diag() + half[1:].diag(-1)
    expected[-1, -1], expected[-1, -2] = 1.0, 0.5**0.5
    torch.testing.assert_close(chain, expected, rtol=0, atol=1e-7)
    assert p[LENGTH:, :LENGTH].abs().max() == 0
