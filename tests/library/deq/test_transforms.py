"""Layers in the transforms of ``torch.func``: every solver with every gradient estimator."""

import pytest
import torch
from problems import TanhCell
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.utils.parametrizations import weight_norm

import phantomgrad as pg
from phantomgrad.nn import VariationalDropout

ADJOINT = pg.Broyden(max_evaluations=25, tol=1e-13)
SOLVERS = {
    "fixed point": pg.FixedPoint(max_evaluations=40, tol=1e-13, damping=0.9),
    "anderson": pg.Anderson(max_evaluations=25, tol=1e-13),
    "broyden": pg.Broyden(max_evaluations=25, tol=1e-13),
    "steps": pg.Steps(40),
    "reversible": pg.Reversible(max_evaluations=60, tol=1e-13, backward_tol=0.0),
}
GRADIENTS = {
    "unrolled": pg.UnrolledPhantomGradient(3, 0.5),
    "neumann": pg.NeumannPhantomGradient(3, 0.5),
    "neumann of the image": pg.NeumannPhantomGradient(3, 0.5, "image"),
    "implicit": pg.ImplicitGradient(solver=ADJOINT),
    "through the solver": pg.BackpropThroughSolver(),
}
CELLS = [
    pytest.param(solver, gradient, id=f"{name}, {kind}")
    for name, solver in SOLVERS.items()
    for kind, gradient in GRADIENTS.items()
    if solver.differentiable or not gradient.needs_recorded_solve
]
X = torch.linspace(-1, 1, 6, dtype=torch.float64).view(2, 3)


def layer_of(solver, gradient, cell=None):
    layer = pg.DEQ(cell or TanhCell(3, 0.5), solver, gradient)
    return layer, {name: p.detach() for name, p in layer.named_parameters()}


def by_autograd(layer, loss, x):
    weights = dict(layer.named_parameters())
    return dict(
        zip(weights, torch.autograd.grad(loss(weights, x), list(weights.values())), strict=True)
    )


def assert_close(ours, expected):
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("solver", "gradient"), CELLS)
def test_transforms_give_the_gradient_of_autograd(solver, gradient):
    """grad, vmap over samples and over models, vjp, jvp; a jvp is the transpose of the vjp."""
    layer, weights = layer_of(solver, gradient)

    def loss(weights, x):
        return functional_call(layer, weights, (x,)).z.square().sum()

    expected = by_autograd(layer, loss, X)
    assert_close(grad(loss)(weights, X), expected)

    per_sample = vmap(grad(loss), in_dims=(None, 0))(weights, X.unsqueeze(1))
    singles = [by_autograd(layer, loss, x) for x in X.unsqueeze(1)]
    assert_close(per_sample, {name: torch.stack([g[name] for g in singles]) for name in weights})
    of_sum = grad(lambda w: vmap(loss, in_dims=(None, 0))(w, X.unsqueeze(1)).sum())
    assert_close(of_sum(weights), expected)

    ensemble = {name: torch.stack([0.5 * w, w]) for name, w in weights.items()}
    assert_close({n: g[1] for n, g in vmap(grad(loss), (0, None))(ensemble, X).items()}, expected)

    def equilibrium(weights):
        return functional_call(layer, weights, (X,)).z

    tangents = {name: torch.randn_like(w) for name, w in weights.items()}
    z, moved = jvp(equilibrium, (weights,), (tangents,))
    assert_close(z, layer(X).z.detach())
    v = torch.randn_like(z)
    (pulled,) = vjp(equilibrium, weights)[1](v)
    there = sum((pulled[name] * t).sum() for name, t in tangents.items())
    assert_close((v * moved).sum(), there)


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
def test_autocast_holds_in_the_backward_pass(gradient):
    """The input is in bfloat16, which the weights accept under autocast only."""
    coarse = pg.FixedPoint(max_evaluations=20, tol=4e-3)
    if isinstance(gradient, pg.ImplicitGradient):
        gradient = pg.ImplicitGradient(solver=coarse)
    layer, _ = layer_of(coarse, gradient, TanhCell(3, 0.5).float())
    weights = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(weights, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return functional_call(layer, weights, (x,)).z.float().square().sum()

    for name, expected in by_autograd(layer, loss, X.bfloat16()).items():
        ours = grad(loss)(weights, X.bfloat16())[name]
        torch.testing.assert_close(ours, expected, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
def test_jacobians_by_the_inputs(gradient):
    layer, _ = layer_of(SOLVERS["fixed point"], gradient)
    reverse, forward = (jac(lambda x: layer(x).z)(X) for jac in (jacrev, jacfwd))
    assert_close(forward, reverse)
    assert reverse[0, :, 0].abs().min() > 1e-6
    assert reverse[0, :, 1].abs().max() == 0


@pytest.mark.parametrize("kind", ["neumann", "implicit"])
def test_the_map_in_the_backward_pass_is_that_of_its_forward_pass(kind):
    """Shared weights, masks, buffers, packed states, integer inputs and keywords are passed on."""

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = weight_norm(nn.Linear(6, 6))
            self.dropout = VariationalDropout(0.4)
            self.register_buffer("shift", torch.ones(3))

        def forward(self, z, x, index, scale=1.0):
            y = 0.4 * self.dropout(torch.tanh(self.linear(torch.cat(z, dim=1)))) * scale
            return y[:, :3] + x[:, index], y[:, 3:] + self.shift

    layer, weights = layer_of(SOLVERS["fixed point"], GRADIENTS[kind], Cell())
    layer.check_map = False
    index, z0 = torch.tensor([2, 0, 1]), (torch.zeros(2, 3), torch.zeros(2, 3))

    def loss(weights, x):
        torch.manual_seed(5)
        (a, b), _ = functional_call(layer, weights, (x, index), {"z0": z0, "scale": 0.7})
        first = layer.cell.dropout.mask
        layer(2 * X, index, z0=z0)  # draws other masks
        assert not torch.equal(layer.cell.dropout.mask, first)
        return (a * b).sum()

    expected = by_autograd(layer, loss, X)
    assert_close(grad(loss)(weights, X), expected)
    assert all(g.abs().max() > 0 for g in expected.values())


@pytest.mark.parametrize("kind", ["unrolled", "neumann", "through the solver", "implicit"])
def test_many_cotangents_at_once(kind):
    layer, weights = layer_of(SOLVERS["fixed point"], GRADIENTS[kind])
    z, wanted = layer(X).z, list(layer.parameters())
    cotangents = torch.randn(3, *z.shape)
    singles = [torch.autograd.grad(z, wanted, v, retain_graph=True) for v in cotangents]
    expected = [torch.stack(gradients) for gradients in zip(*singles, strict=True)]
    if kind == "implicit":
        with pytest.raises(RuntimeError, match=r"use torch\.func\.vmap over"):
            torch.autograd.grad(z, wanted, cotangents, is_grads_batched=True)
        pull = vjp(lambda weights: functional_call(layer, weights, (X,)).z, weights)[1]
        together = list(vmap(pull)(cotangents)[0].values())
    else:
        together = list(torch.autograd.grad(z, wanted, cotangents, is_grads_batched=True))
    assert_close(together, expected)


def test_samples_of_a_vmap_have_masks_of_their_own():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout = VariationalDropout(0.5)

        def forward(self, z, x):
            return self.dropout(0.2 * z + x)

    layer, _ = layer_of(SOLVERS["broyden"], GRADIENTS["neumann"], Cell())
    x = torch.ones(8, 3)

    def slope(x):
        return grad(lambda x: layer(x.unsqueeze(0)).z.sum())(x)

    slopes = vmap(slope, randomness="different")(x)
    dropped = slopes == 0
    assert len(dropped.unique(dim=0)) > 1
    kept = 2 * 0.5 * sum((0.5 * 0.4 + 0.5) ** i for i in range(3))
    assert_close(slopes[~dropped], torch.full_like(slopes[~dropped], kept))


REFUSED = {
    "implicit, order 2": pg.ImplicitGradient(solver=ADJOINT, order=2),
    "implicit, at the image": pg.ImplicitGradient(solver=ADJOINT, at="image"),
    "adaptive damping": pg.NeumannPhantomGradient(3, "adaptive"),
}


@pytest.mark.parametrize("gradient", REFUSED.values(), ids=REFUSED)
def test_what_calls_autograd_itself_is_refused(gradient):
    layer, _ = layer_of(SOLVERS["fixed point"], gradient)
    with pytest.raises(RuntimeError, match=r"in a transform of torch\.func: use a phantom"):
        grad(lambda x: layer(x).z.sum())(X)


def test_a_transform_leaves_the_report_of_the_last_pass():
    layer, _ = layer_of(SOLVERS["broyden"], GRADIENTS["implicit"])
    layer(X).z.sum().backward()
    before = layer.last_solution, layer.last_adjoint
    vmap(lambda x: layer(x.unsqueeze(0)).z)(X)
    assert (layer.last_solution, layer.last_adjoint) == before


def test_states_on_the_way_are_those_of_the_same_evaluations_in_a_vmap():
    layer, _ = layer_of(SOLVERS["fixed point"], GRADIENTS["through the solver"])
    expected = layer(X, record_at=(1, 3)).z
    together = vmap(lambda x: layer(x.unsqueeze(0), record_at=(1, 3)).z)(X)
    assert_close([z.squeeze(1) for z in together], list(expected))


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("solver", ["fixed point", "steps", "reversible"])
def test_forward_mode_ignores_no_grad_as_everywhere_in_torch(solver, gradient):
    layer, _ = layer_of(SOLVERS[solver], gradient)
    tangent = torch.randn_like(X)
    expected = jvp(lambda x: layer(x).z, (X,), (tangent,))[1]
    with torch.no_grad():
        moved = jvp(lambda x: layer(x).z, (X,), (tangent,))[1]
    assert_close(moved, expected)


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("solver", ["fixed point", "reversible"])
def test_forward_mode_of_autograd_loses_no_tangent(solver, gradient):
    layer, _ = layer_of(SOLVERS[solver], gradient)
    layer.requires_grad_(False)
    expected = jvp(lambda x: layer(x).z, (X,), (X,))[1]
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, X)
        if isinstance(gradient, pg.NeumannPhantomGradient | pg.ImplicitGradient):
            with pytest.raises(RuntimeError, match=r"use torch\.func\.jvp"):
                layer(x)
        else:
            assert_close(forward_ad.unpack_dual(layer(x).z).tangent, expected)


@pytest.mark.parametrize("kind", ["neumann", "neumann of the image", "implicit"])
@pytest.mark.parametrize("how", ["vmap", "grad", "jvp", "grad of vmap"])
def test_a_tensor_that_the_cell_has_from_elsewhere_is_refused(kind, how):
    class Cell(TanhCell):
        def forward(self, z, x):
            return super().forward(z, x) * elsewhere[0]

    elsewhere = [torch.ones(3, requires_grad=how == "vmap")]
    layer, _ = layer_of(SOLVERS["fixed point"], GRADIENTS[kind], Cell(3, 0.5))

    def together(x):
        return vmap(lambda x: layer(x.unsqueeze(0)).z.sum())(x)

    def by_tensor(tensor):
        elsewhere[0] = tensor
        z = together(X) if how == "grad of vmap" else layer(X).z
        return z.sum()

    one = torch.ones(3)
    calls = {
        "vmap": lambda: together(X),
        "jvp": lambda: jvp(by_tensor, (one,), (one,)),
    }
    with pytest.raises(ValueError, match="the cell depends on a tensor that is not"):
        calls.get(how, lambda: grad(by_tensor)(one))()
