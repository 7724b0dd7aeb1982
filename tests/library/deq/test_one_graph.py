"""Layers in graphs that may not break: ``torch.compile(fullgraph=True)``, export and ONNX."""

import copy
from dataclasses import replace

import pytest
import torch
from problems import TanhCell
from small_models import FAMILIES
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.utils.parametrizations import weight_norm

import phantomgrad as pg
from phantomgrad.nn import VariationalDropout, one_pass

pytestmark = [
    # Dynamo reads the .grad of every input, which makes torch warn.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SOLVERS = {
    "fixed point": pg.FixedPoint(max_evaluations=3, tol=0.15, damping=0.9),
    "anderson": pg.Anderson(max_evaluations=3, memory=2, tol=0.15),
    "broyden": pg.Broyden(max_evaluations=3, tol=0.15),
    "steps": pg.Steps(3),
    "reversible": pg.Reversible(max_evaluations=4, tol=0.3, backward_tol=0.0),
}
UPG = pg.UnrolledPhantomGradient(2, 0.5)
SHORT = pg.FixedPoint(max_evaluations=2, tol=0.05)
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


class Model(nn.Module):
    def __init__(self, solver, gradient, cell=None):
        super().__init__()
        self.inject = nn.Linear(4, 4)
        self.deq = pg.DEQ(cell or TanhCell(), solver, gradient)

    def forward(self, x):
        return self.deq(self.inject(x).sin()).z.cos()


class NormedDroppedCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = weight_norm(nn.Linear(4, 4))
        self.dropout = VariationalDropout(0.3)

    def forward(self, z, x):
        return 0.5 * self.dropout(torch.tanh(self.linear(z) + x))


@pytest.fixture(autouse=True)
def _forget():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def inputs(batch):
    return torch.linspace(-3, 3, 4 * batch).view(batch, 4).to(torch.get_default_dtype())


def found(model, x, weights):
    torch.manual_seed(1)  # for dropout masks
    y = model(x)
    return y.detach(), *torch.autograd.grad(y.square().sum(), weights)


def assert_one_graph(model, backend, tolerance, batches=1):
    """Values and gradients are those of the eager model, twice, without a new graph."""
    model.deq.check_map = False  # draws a mask
    graphs, weights = CompileCounterWithBackend(backend), list(model.parameters())
    compiled = torch.compile(model, backend=graphs, fullgraph=True)
    for batch in range(3, 3 + batches):
        x = inputs(batch).to(weights[0].dtype)
        for _ in range(2):
            ours, expected = (found(m, x, weights) for m in (compiled, model))
            torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)
        assert graphs.frame_count == batch - 2


@every_solver
def test_every_solver_compiles_to_one_graph(solver):
    """Tests of gradients and of export pass such graphs through AOTAutograd, too."""
    assert_one_graph(Model(solver, UPG), "eager", 1e-12)


GRADIENTS = {
    "neumann": pg.NeumannPhantomGradient(2, 0.5),
    "neumann of the image": pg.NeumannPhantomGradient(2, 0.5, "image"),
    "implicit": pg.ImplicitGradient(solver=pg.Broyden(max_evaluations=3, tol=0)),
    "implicit by GMRES": pg.ImplicitGradient(solver=pg.GMRES(max_evaluations=3, tol=0)),
    "through the solver": pg.BackpropThroughSolver(),
}


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
def test_every_gradient_compiles_to_one_graph(gradient):
    assert_one_graph(Model(SHORT, gradient), "aot_eager", 1e-12)


@pytest.mark.parametrize("solver", ["steps", "reversible"])
def test_backpropagation_through_steps_compiles_to_one_graph(solver):
    assert_one_graph(Model(SOLVERS[solver], pg.BackpropThroughSolver()), "eager", 1e-12)


def test_autocast_compiles_to_one_graph():
    class Autocast(Model):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x.float()).float()

    model = Autocast(replace(SHORT, tol=0.05), GRADIENTS["neumann"]).float()
    assert_one_graph(model, "aot_eager", 1e-6)


def test_states_on_the_way_compile_to_one_graph():
    class Supervised(Model):
        def forward(self, x):
            return torch.stack(self.deq(self.inject(x), record_at=(1, 3)).z)

    assert_one_graph(Supervised(SOLVERS["fixed point"], UPG), "aot_eager", 1e-12)


@pytest.mark.parametrize("kind", ["neumann", "implicit"])
def test_a_tensor_that_the_cell_has_from_elsewhere_is_refused(kind):
    class Cell(TanhCell):
        def forward(self, z, x):
            return super().forward(z, x) * elsewhere

    elsewhere = torch.ones(4, requires_grad=True)
    model = Model(SOLVERS["fixed point"], GRADIENTS[kind], Cell())
    with pytest.raises(Exception, match="the cell depends on a tensor that is not"):
        torch.compile(model, backend="eager", fullgraph=True)(inputs(3))


def test_shared_weights_masks_and_other_batches_compile():
    assert_one_graph(Model(SHORT, UPG, NormedDroppedCell()), "aot_eager", 1e-12, batches=2)


def test_a_model_of_tokens_compiles_to_one_graph():
    family = FAMILIES["PreLN"]
    model = family.build(pg.UnrolledPhantomGradient(1, 0.5), pg.Steps(1)).eval()
    arguments = family.arguments()  # random ones
    ours = torch.compile(model, backend="eager", fullgraph=True)(*arguments)
    torch.testing.assert_close(ours, model(*arguments))


REFUSED = {
    "implicit, order 2": pg.ImplicitGradient(order=2),
    "adaptive damping": pg.UnrolledPhantomGradient(2, "adaptive"),
    "a preconditioner": pg.ImplicitGradient(preconditioner="forward"),
}


@pytest.mark.parametrize("gradient", REFUSED.values(), ids=REFUSED)
def test_gradients_that_call_autograd_break_a_graph(gradient):
    """They are refused with the reason under ``fullgraph=True``, and work without it."""
    model, x = Model(pg.Broyden(max_evaluations=8, tol=0.05), gradient), inputs(3)
    with pytest.raises(Exception, match="fullgraph=True") as refusal:
        torch.compile(model, backend="eager", fullgraph=True)(x)
    assert "use a phantom gradient with a number" in str(refusal.value)
    torch.compiler.reset()
    other = copy.deepcopy(model)
    ours = found(torch.compile(other, backend="eager"), x, list(other.parameters()))
    torch.testing.assert_close(ours, found(model, x, list(model.parameters())))
    assert other.deq.last_solution.evaluations.max() < 8  # it stopped early


@every_solver
def test_an_exported_layer_is_the_eager_one(solver):
    """For any batch, in value bit for bit but for unrolled systems; whatever the gradient."""
    model = Model(solver, pg.ImplicitGradient()).eval()
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(model, (inputs(4),), dynamic_shapes=({0: batch},)).module()
    for size in (1, 4, 9):
        with torch.no_grad():
            expected = model(inputs(size))
        torch.testing.assert_close(program(inputs(size)), expected, rtol=1e-12, atol=1e-12)
    assert bool(model.deq.last_solution.converged.any()) != isinstance(solver, pg.Steps)


@pytest.mark.parametrize("name", ["fixed point", "anderson", "broyden"])
def test_onnx(name, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    model = Model(SOLVERS[name], pg.ImplicitGradient()).float().eval()
    x, batch = inputs(4).float(), torch.export.Dim("batch", min=1)
    file = str(tmp_path / "layer.onnx")
    torch.onnx.export(model, (x,), file, dynamic_shapes=({0: batch},), dynamo=True, verbose=False)
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for size in (1, 4, 9):
        x = inputs(size).float()
        (ours,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(ours), model(x), rtol=1e-5, atol=1e-5)


def test_a_weight_norm_that_comes_later():
    """A new cell is prepared when it is assigned; for a part of one, an eager call is needed."""
    model, x = Model(SHORT, UPG), inputs(3)
    model.deq.cell = NormedDroppedCell()
    assert_one_graph(model, "aot_eager", 1e-12)
    model = Model(SHORT, UPG)
    weight_norm(model.deq.cell.linear)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="after the layer was made: call the layer once before"):
        compiled(x)
    expected = model(x)
    torch.testing.assert_close(compiled(x), expected)


def test_a_model_that_shares_weights_compiles_after_a_weight_norm():
    class Sharing(Model):
        def forward(self, x):
            with one_pass(self.deq.cell):
                return super().forward(x)

    model, x = Sharing(SHORT, UPG), inputs(3)
    weight_norm(model.deq.cell.linear)
    compiled = torch.compile(model, backend="eager")(x)
    torch.testing.assert_close(compiled, model(x))
