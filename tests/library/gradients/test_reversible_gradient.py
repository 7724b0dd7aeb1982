"""Backpropagation through the reversible solver: what a layer and autograd see of it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pytest
import torch
from methods import RecomputedCell, reversible
from problems import TanhCell, looped, relative_error, saved_tensors
from torch import nn

import phantomgrad as pg
from phantomgrad.nn import one_pass

BPTT = pg.BackpropThroughSolver()


@pytest.mark.parametrize("coupled", [False, True], ids=["tensor", "coupled"])
def test_layers_that_share_a_cell_and_feed_each_other(coupled):
    """Both inputs have a graph, one is on that of the other, and so is every weight."""
    cell, x = RecomputedCell(), torch.randn(3, 4, requires_grad=True)
    layer, gradients = pg.DEQ(cell, reversible(9), BPTT, coupled=coupled), []
    layer.check_map = False
    states = []
    for by_hand in (False, True):
        torch.manual_seed(0)
        given = torch.sin(x)
        more = torch.cos(given + x)
        if by_hand:
            with one_pass(cell), one_pass(cell):
                first = _looped(
                    lambda z, s=given: cell(z, s), torch.zeros(3, 4), states[0], coupled
                )
            with one_pass(cell), one_pass(cell):
                start = (first, more)
                second = _looped(
                    lambda z, s=start: cell(z, s[0], more=s[1]), given, states[1], coupled
                )
        else:
            first, _ = layer(given)
            second, _ = layer(first, z0=given, more=more)
            states = [first.detach(), second.detach()]
        cell.eval()  # the backward pass uses the masks of its forward pass
        loss = first.square().sum() + second.sum()
        gradients.append(torch.autograd.grad(loss, [x, given, first, *cell.parameters()]))
        cell.train()
    assert relative_error(*gradients) < 1e-11


def _looped(f, z0, value, coupled):
    if not coupled:
        return looped(f, z0, value, 9)
    one = lambda z: f(z.view(3, 4)).reshape(1, 12)  # noqa: E731
    return looped(one, z0.reshape(1, 12), value.reshape(1, 12), 9).view(3, 4)


def test_backward_gives_what_grad_gives_and_hooks_see_it():
    cell = TanhCell()
    layer, x = pg.DEQ(cell, reversible(21), BPTT), torch.randn(3, 4, requires_grad=True)
    z, solution = layer(x)
    assert not layer.last_solution.z.numel()
    assert solution.residual.max() < 0.2
    wanted, seen = [x, *cell.parameters()], []
    cell.linear.bias.register_hook(seen.append)
    expected = torch.autograd.grad(z.square().sum(), wanted, retain_graph=True)
    z0 = torch.zeros(3, 4)
    again, _ = layer(x, z0=z0)
    z0.fill_(1.0)
    ours = torch.autograd.grad(again.square().sum(), wanted)
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)
    z.square().sum().backward()
    torch.testing.assert_close([t.grad for t in wanted], [*expected], rtol=0, atol=0)
    assert torch.equal(seen[-1], cell.linear.bias.grad)
    with pytest.raises(RuntimeError, match="second time"):
        z.sum().backward()


@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
def test_autocast_is_restored_in_the_backward_pass(inside):
    torch.manual_seed(0)
    cell, x = TanhCell(16).float(), torch.randn(8, 16, dtype=torch.float32)
    gradients = []
    for enabled in (True, False):
        layer = pg.DEQ(cell, reversible(25, backward_tol=1e-6), BPTT)
        with torch.autocast("cpu", enabled=enabled):
            cell(x, x)  # fills the cache of autocast
            z, _ = layer(x)
            if inside:
                gradients.append(torch.autograd.grad(z.square().sum(), list(cell.parameters())))
        if not inside:
            gradients.append(torch.autograd.grad(z.square().sum(), list(cell.parameters())))
        assert z.dtype == torch.float32
    assert 1e-6 < relative_error(*gradients) < 0.03


def test_the_memory_does_not_grow_with_the_iterations():
    cell, x, counts = TanhCell(), torch.randn(3, 4, requires_grad=True), []
    for evaluations in (5, 40):
        with saved_tensors() as alive:
            z, _ = pg.DEQ(cell, reversible(evaluations), BPTT)(x)
            kept = alive()
            most = [0]
            cell.linear.register_forward_hook(lambda *_, m=most, a=alive: m.append(a()))
            z.sum().backward()
        counts.append((kept, max(most)))
    assert counts[0] == counts[1]
    assert counts[0][0] == 2 + 3  # two iterates, and references to input and parameters


class Noisy(TanhCell):
    def forward(self, z, x):
        return super().forward(z, x) + 0.1 * torch.randn_like(z)


def test_a_map_that_changes_is_an_error():
    layer = pg.DEQ(Noisy(), reversible(31), BPTT)
    layer.check_map = False
    z = layer(torch.randn(3, 4)).z
    with pytest.raises(RuntimeError, match="other values in the backward pass"):
        z.sum().backward()


class Foreign(TanhCell):
    """It uses a tensor that is neither its parameter nor its input."""

    def __init__(self):
        super().__init__()
        self.__dict__["bound"] = [torch.randn(4, requires_grad=True).exp()]

    def forward(self, z, x):
        return super().forward(z, x) * self.bound[0]


class Caching(TanhCell):
    """It computes a weight once, in the first evaluation."""

    def __init__(self):
        super().__init__()
        self.cached = None

    def forward(self, z, x):
        if self.cached is None:
            self.cached = self.linear.weight / 2
        return torch.tanh(z @ self.cached + x)


def test_no_gradient_is_lost_silently():
    x = torch.randn(3, 4)
    with pytest.raises(ValueError, match="neither a parameter of the cell nor an input"):
        pg.DEQ(Foreign(), reversible(9), BPTT)(x)
    cell = TanhCell()
    cell.lock = Lock()
    with pytest.raises(ValueError, match=r"the cell must be one that copy.deepcopy copies: cannot"):
        pg.DEQ(cell, reversible(9), BPTT)(x)
    cell = TanhCell()
    z = pg.DEQ(cell, reversible(9), BPTT)(x).z
    with torch.no_grad():
        cell.linear.bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        pg.DEQ(Caching(), reversible(9), BPTT)(x).z.sum().backward()


class Energy(nn.Module):
    """A map that is a gradient itself."""

    def forward(self, z, x):
        with torch.enable_grad():
            z = z if z.requires_grad else z.detach().requires_grad_()
            energy = (0.5 * z * x.sigmoid()).cos().sum()
            return torch.autograd.grad(energy, z, create_graph=True)[0] + x


def test_a_map_that_is_a_gradient_is_refused():
    with pytest.raises(ValueError, match=r"a graph of its own \(torch\.enable_grad\)"):
        pg.DEQ(Energy(), reversible(31), BPTT)(torch.randn(3, 4))


@pytest.mark.parametrize("solver", [pg.Anderson(), pg.Broyden(), pg.FixedPoint()], ids=repr)
def test_a_map_that_is_a_gradient_is_solved_without_a_graph(solver):
    layer, x = pg.DEQ(Energy(), solver, pg.UnrolledPhantomGradient(3, 0.5)), torch.randn(3, 4)
    z, solution = layer(x)
    assert solution.converged.all()
    with torch.no_grad():
        again, _ = layer(x)
    torch.testing.assert_close(z, again, rtol=0, atol=1e-2)


@pytest.mark.parametrize(("how", "batches"), [("create_graph", ()), ("is_grads_batched", (2,))])
def test_second_derivatives_and_several_cotangents_are_refused(how, batches):
    x = torch.randn(3, 4, requires_grad=True)
    z, _ = pg.DEQ(TanhCell(), reversible(5), BPTT)(x)
    with pytest.raises(RuntimeError, match=rf"a Reversible solve .*{how}=.*use FixedPoint"):
        torch.autograd.grad(z, x, torch.ones(*batches, 3, 4), **{how: True})


def test_an_infinite_cotangent_is_not_taken_for_one_that_has_decayed():
    """Gradient scalers look for overflows in the gradients of the parameters."""
    cell, x = TanhCell(), torch.randn(2, 4, requires_grad=True)
    z, _ = pg.DEQ(cell, reversible(12), BPTT)(x)
    z.backward(torch.tensor([[1.0], [torch.inf]]).expand_as(z))
    assert not any(p.grad.isfinite().all() for p in cell.parameters() if p.grad is not None)
    assert [row.isfinite().all().item() for row in x.grad] == [True, False]


def test_hooks_of_parameters_act_once_in_each_of_several_threads():
    cell, x, seen = TanhCell(), torch.randn(3, 4), []
    layer = pg.DEQ(cell, reversible(21), BPTT)
    layer.check_map = False
    expected = torch.autograd.grad(layer(x).z.sum(), cell.linear.weight)[0]
    handle = cell.linear.weight.register_hook(lambda g: (seen.append(g), 2 * g)[1])

    def gradients(_):
        return [torch.autograd.grad(layer(x).z.sum(), cell.linear.weight)[0] for _ in range(4)]

    with ThreadPoolExecutor(4) as threads:
        found = [g for of_thread in threads.map(gradients, range(4)) for g in of_thread]
    assert all(torch.equal(g, 2 * expected) for g in found)
    assert len(seen) == len(found)
    handle.remove()
    assert torch.equal(gradients(0)[0], expected)


def test_a_zero_cotangent_gives_zero_gradients():
    cell, x = TanhCell(), torch.randn(3, 4, requires_grad=True)
    z = pg.DEQ(cell, reversible(21), BPTT)(x).z
    assert not any(g.any() for g in torch.autograd.grad(0 * z.sum(), [x, *cell.parameters()]))
