"""What holds for the models of every family: gradients, masks, weights, copies, modes."""

import pytest
import torch
from methods import assert_twins
from problems import exact_gradient, relative_error
from small_models import IMPLICIT, PHANTOM, every_family, every_paper_family, scores
from torch.nn.utils import parametrize
from torch.utils import _pytree

from phantomgrad import FixedPoint, NeumannPhantomGradient
from phantomgrad.nn import VariationalDropout, current_pass

SHORT = FixedPoint(max_evaluations=8, tol=0)
every_gradient = pytest.mark.parametrize(
    "gradient", [IMPLICIT, PHANTOM, NeumannPhantomGradient(3, 0.5)], ids=lambda g: type(g).__name__
)
solved_or_unrolled = pytest.mark.parametrize("unrolled", [0, 2])


@every_gradient
@every_family
def test_gradient_is_that_of_dense_matrices(family, gradient):
    """All parameters on which the equilibrium depends are compared."""
    model, passes = family.build(gradient), []
    model.deq.register_forward_hook(
        lambda _, inputs, keywords, out: passes.append((inputs, keywords, *out)), with_kwargs=True
    )
    model(*family.arguments())
    inputs, keywords, z, solution = passes[0]
    f, _ = model.deq.close_over(inputs, keywords.get("z0", solution.z))
    attached, v = f.packing.pack(z) if f.packing else z, torch.randn_like(solution.z)
    gradients = torch.autograd.grad(
        attached, list(model.parameters()), v, retain_graph=True, allow_unused=True
    )
    reached = [p for p, g in zip(model.parameters(), gradients, strict=True) if g is not None]
    assert {id(p) for p in reached} >= {id(p) for p in model.deq.parameters()}
    series = None if gradient is IMPLICIT else (3, 0.5)
    expected = exact_gradient(f, solution.z, v, reached, series)
    assert relative_error(tuple(g for g in gradients if g is not None), expected) < 1e-9


@every_family
def test_every_parameter_gets_a_gradient(family):
    model = family.build(solver=SHORT, **family.dropout)
    scores(model, family.arguments()).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.any(), name
        assert parameter.grad.isfinite().all(), name


@every_family
@torch.no_grad()
def test_samples_of_a_batch_are_independent(family):
    model, arguments = family.build().eval(), family.arguments()
    alone = _pytree.tree_map(lambda t: t[:1], arguments)
    torch.testing.assert_close(scores(model, alone), scores(model, arguments)[:1])


def mask_of(dropout):
    held = current_pass()
    return held.masks[held.key(dropout)]


@solved_or_unrolled
@every_paper_family
def test_solve_and_gradient_share_one_mask(family, unrolled):
    model, arguments = family.build(solver=SHORT, **family.dropout), family.arguments()
    masks = {}
    for name, module in model.named_modules():
        if isinstance(module, VariationalDropout):
            seen = masks.setdefault(name, [])
            module.register_forward_hook(lambda m, _i, _o, seen=seen: seen.append(mask_of(m)))
    scores(model, arguments, unrolled=unrolled).sum().backward()
    assert {name: tuple(seen[0].shape) for name, seen in masks.items()} == family.masks
    counts = {name: len(seen) for name, seen in masks.items()}
    assert max(counts.values()) >= 2
    scores(model, arguments, unrolled=unrolled)
    for name, seen in masks.items():
        assert all(torch.equal(mask, seen[0]) for mask in seen[: counts[name]])
        assert seen[counts[name]] is not seen[0]


@every_family
@torch.no_grad()
def test_evaluation_is_deterministic_and_reports_the_solve(family):
    model, arguments = family.build(**family.dropout).eval(), family.arguments()
    assert torch.equal(scores(model, arguments), scores(model, arguments))
    assert model.deq.last_solution.converged.all()
    model.train()
    same = torch.equal(scores(model, arguments), scores(model, arguments))
    assert same == (not family.dropout)


@solved_or_unrolled
@every_paper_family
def test_normed_weights_are_computed_once_in_a_pass(family, unrolled):
    model, computed = family.build(), []
    normed = [m for m in model.modules() if parametrize.is_parametrized(m)]
    assert len(normed) >= 5
    for module in normed:
        module.parametrizations.weight[0].register_forward_hook(lambda *_: computed.append(1))
    for forward in (1, 2):
        scores(model, family.arguments(), unrolled=unrolled).sum().backward()
        assert len(computed) == forward * len(normed)


@every_paper_family
def test_unrolling_does_not_solve(family):
    model = family.build(gradient=IMPLICIT)
    scores(model, family.arguments()).sum().backward()
    assert model.deq.last_solution is not None
    assert model.deq.last_adjoint is not None
    model(*family.arguments(), unrolled=2)
    assert (model.deq.last_solution, model.deq.last_adjoint) == (None, None)


@every_family
def test_copies_and_pickles(family):
    arguments = family.arguments()
    assert_twins(family.build, lambda model: scores(model, arguments).square().sum())


# Dynamo reads the .grad of every input, which makes torch warn.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@every_family
def test_a_solve_can_be_compiled(family):
    two = FixedPoint(max_evaluations=2, tol=0)
    model, arguments, found = family.build(solver=two, **family.dropout), family.arguments(), []
    torch.compiler.reset()
    for compiled in (False, True):
        if compiled:
            model.deq.compile_solve(backend="eager", fullgraph=True)
        torch.manual_seed(1)
        found.append(scores(model, arguments))
    torch.testing.assert_close(*found)
