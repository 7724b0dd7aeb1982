"""Attractor models: a proposal, the equilibrium from there, and what learns by which gradient."""

import torch

import phantomgrad as pg
from phantomgrad.models.transformer import empty_memory
from phantomgrad_reasoners.attractor import AttractorLM

SOLVER = pg.Anderson(max_evaluations=8)


def model(gradient, solver=SOLVER):
    torch.manual_seed(0)
    sizes = {"width": 8, "heads": 2, "inner": 16, "cutoffs": ()}
    return AttractorLM(9, solver, gradient, **sizes, dropout=0.0, embedding_std=0.5)


def words(rows=2, length=5):
    return torch.randint(9, (2, rows, length)).unbind()


def test_without_solver_the_proposal_is_the_answer():
    attractor, (tokens, targets) = model(pg.NeumannPhantomGradient(2, 1.0)).eval(), words()
    with torch.no_grad():
        losses, memory = attractor(tokens, targets, solver=pg.Steps(0))
        proposal = attractor.embed(tokens)
        logs = attractor.softmax.log_probs(proposal.flatten(0, 1), attractor.embedding)
        solved, _ = attractor(tokens, targets)
    expected = -logs.gather(1, targets.flatten()[:, None]).view(targets.shape)
    torch.testing.assert_close(losses, expected)
    assert torch.equal(memory.states, proposal)
    assert not torch.allclose(solved, losses)


def test_the_backbone_learns_through_the_injection_alone():
    attractor, (tokens, targets) = model(pg.UnrolledPhantomGradient(2, 1.0), pg.Steps(0)), words()
    losses, _ = attractor(tokens, targets)
    proposal = attractor.embed(tokens)
    u, z = attractor.injection(proposal), proposal.detach()
    context = attractor.context(u, empty_memory(u, u.dtype))
    for _ in range(2):
        z = attractor.cell(z, context)
    logs = attractor.softmax.log_probs(z.flatten(0, 1), attractor.embedding)
    expected = -logs.gather(1, targets.flatten()[:, None]).view(targets.shape)
    torch.testing.assert_close(losses, expected)
    weights = list(attractor.backbone.parameters())
    ours, theirs = (
        torch.autograd.grad(x.sum(), weights, retain_graph=True) for x in (losses, expected)
    )
    torch.testing.assert_close(ours, theirs)
    assert all(gradient.any() for gradient in ours)


def test_no_word_sees_those_after_it():
    attractor, (tokens, targets) = model(pg.UnrolledPhantomGradient(2, 1.0)).eval(), words()
    changed = tokens.clone()
    changed[:, 3] = (tokens[:, 3] + 1) % 9
    with torch.no_grad():
        losses, others = (attractor(t, targets, solver=pg.Steps(3))[0] for t in (tokens, changed))
    torch.testing.assert_close(losses[:, :3], others[:, :3])
    assert not torch.allclose(losses[:, 3:], others[:, 3:])
