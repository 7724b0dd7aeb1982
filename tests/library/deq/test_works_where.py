"""The table "What works where" of docs/library.md: every entry is tried."""

import copy
import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from problems import TanhCell
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, stack_module_state
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import phantomgrad as pg
from phantomgrad.nn import NormedLinear, VariationalDropout

pytestmark = [
    # Dynamo reads the .grad of every input, which makes torch warn.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # weight norm in a vmap
    pytest.mark.filterwarnings("ignore:.torch.jit.trace"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]

SOLVERS = {  # a graph with more evaluations takes longer to compile
    "fixed point": pg.FixedPoint(max_evaluations=3, tol=0.15, damping=0.9),
    "anderson": pg.Anderson(max_evaluations=3, memory=2, tol=0.15),
    "broyden": pg.Broyden(max_evaluations=3, tol=0.15),
    "steps": pg.Steps(2),
    "reversible": pg.Reversible(max_evaluations=3, tol=0.3, backward_tol=0.0),
}
ADJOINT = pg.Broyden(max_evaluations=12, tol=1e-12)
GRADIENTS = {
    "UPG": pg.UnrolledPhantomGradient(2, 0.5),
    "BPTT": pg.BackpropThroughSolver(),
    "NPG": pg.NeumannPhantomGradient(2, 0.5),
    "implicit": pg.ImplicitGradient(solver=ADJOINT),
}


class Cell(nn.Module):
    """A tanh cell with weight norm and a dropout that is active in training."""

    def __init__(self):
        super().__init__()
        self.linear = NormedLinear(4, 4)
        self.dropout = VariationalDropout(0.3)

    def forward(self, z, x):
        return 0.5 * self.dropout(torch.tanh(self.linear(z) + x))


class Model(nn.Module):
    def __init__(self, gradient, solver, cell=None):
        super().__init__()
        torch.manual_seed(3)
        self.inject = nn.Linear(4, 4)
        self.deq = pg.DEQ(cell or Cell(), solver, gradient)
        self.deq.check_map = False  # it would draw a mask

    def forward(self, x):
        return self.deq(self.inject(x).sin()).z.cos()


def inputs(batch=3):
    return torch.linspace(-3, 3, 4 * batch).view(batch, 4).to(torch.get_default_dtype())


def found(call, model, x=None):
    """The value and the gradients of a call, from one seed."""
    torch.manual_seed(1)
    y = call(inputs() if x is None else x)
    return y.detach(), *torch.autograd.grad(y.square().sum(), list(model.parameters()))


def assert_same(ours, expected, tolerance=1e-10):
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)


def eager(model):
    expected = found(model, model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_same(found(model, model), expected, 0.1)
    model.eval()
    with torch.no_grad():
        plain = model(inputs())
    with torch.inference_mode():
        assert_same(model(inputs()).clone(), plain)
    assert not plain.requires_grad


def copies(model):
    expected = found(model, model)
    stream = io.BytesIO()
    torch.save(model.state_dict(), stream)
    stream.seek(0)
    loaded = Model(model.deq.gradient, model.deq.solver)
    loaded.load_state_dict(torch.load(stream))
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded, averaged):
        assert_same(found(twin, twin), expected)


def threads(model):
    model.eval()  # random numbers are those of the process
    expected = found(model, model)
    with ThreadPoolExecutor(4) as pool:
        for ours in pool.map(lambda _: found(model, model), range(12)):
            assert_same(ours, expected)


def checkpointed(model):
    """With ``use_reentrant=True`` the value is that of a pass without a graph."""
    x, expected = inputs().requires_grad_(), found(model, model)
    assert_same(found(partial(checkpoint, model, use_reentrant=False), model, x), expected)
    torch.manual_seed(1)
    checkpoint(model, x, use_reentrant=True).square().sum().backward()
    ours = [p.grad for p in model.parameters()]
    assert_same(ours, list(expected[1:]), 0.3)


def compiled(model):
    graphs = CompileCounterWithBackend("eager")
    assert_same(found(torch.compile(model, backend=graphs), model), found(model, model))
    assert graphs.frame_count == 2


def fullgraph(model, backend="aot_eager"):
    model.deq.fullgraph = True
    graphs = CompileCounterWithBackend(backend)
    call = torch.compile(model, backend=graphs, fullgraph=True)
    for _ in range(2):
        assert_same(found(call, model), found(model, model))
    assert graphs.frame_count == 1


def exported(model):
    model.eval()
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(model, (inputs(4),), dynamic_shapes=shapes)
    stream = io.BytesIO()
    torch.export.save(program, stream)
    stream.seek(0)
    for call in (program.module(), torch.export.load(stream).module()):
        for batch in (1, 4, 9):
            with torch.no_grad():
                assert_same(call(inputs(batch)), model(inputs(batch)))


def transformed(model):
    model.eval()
    weights = dict(model.named_parameters())

    def loss(weights):
        return functional_call(model, weights, (inputs(),)).square().sum()

    ours = torch.func.grad(loss)({name: w.detach() for name, w in weights.items()})
    assert_same(tuple(ours.values()), torch.autograd.grad(loss(weights), list(weights.values())))


def over_samples(model):
    model.eval()
    weights = {name: w.detach() for name, w in model.named_parameters()}

    def loss(weights, x):
        return functional_call(model, weights, (x[None],)).square().sum()

    ours = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, inputs())
    expected = [torch.func.grad(loss)(weights, x) for x in inputs()]
    for name, gradient in ours.items():
        assert_same(gradient, torch.stack([each[name] for each in expected]))


def over_models(model):
    models = [copy.deepcopy(model).eval() for _ in range(3)]
    with torch.no_grad():
        for i, each in enumerate(models):
            each.inject.weight.mul_(i + 1)
    weights, buffers = stack_module_state(models)

    def loss(weights, buffers):
        return functional_call(models[0], (weights, buffers), (inputs(),)).square().sum()

    ours = torch.vmap(torch.func.grad(loss))(weights, buffers)
    for i, each in enumerate(models):
        expected = found(each, each)[1:]
        assert_same(tuple(gradient[i] for gradient in ours.values()), expected)


def counted(model):
    with FlopCounterMode(display=False) as counter:
        model(inputs()).sum().backward()
    assert counter.get_total_flops() > 0


def without_values(model):
    expected = found(model, model)
    with FakeTensorMode():
        fake = Model(model.deq.gradient, model.deq.solver)
        ours = found(fake, fake)
    meta = model.to("meta")
    for shapes in (ours, found(meta, meta, inputs().to("meta"))):
        assert [t.shape for t in shapes] == [t.shape for t in expected]


def traced(model):
    torch.jit.trace(model, inputs())


ROWS = {
    "eager, autocast": eager,
    "`copy.deepcopy`": copies,
    "threads": threads,
    "`torch.utils.checkpoint`": checkpointed,
    "`torch.compile(model)`": compiled,
    "fullgraph": fullgraph,
    "`torch.export.export`": exported,
    "`torch.func.grad`": transformed,
    "`torch.vmap` over samples": over_samples,
    "`torch.vmap` over stacked": over_models,
    "`FlopCounterMode`": counted,
    "`meta` device": without_values,
    "`torch.jit.trace`": traced,
}
REASONS = {traced: "torch.jit.trace would freeze the number of steps"}
PAGE = (Path(__file__).parents[3] / "docs" / "library.md").read_text()


def table():
    """The entries of the page, (row, gradient, entry)."""
    section = PAGE.split("## What works where\n")[1].split("\n## ")[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    return [(row[0], *pair) for row in rows for pair in zip(head[1:], row[1:], strict=True)]


@pytest.fixture(autouse=True)
def _forget():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def attempt_of(row):
    (attempt,) = [attempt for start, attempt in ROWS.items() if row.startswith(start)]
    return attempt


def test_every_row_of_the_table_is_tried():
    entries = table()
    assert len(entries) == len(ROWS) * len(GRADIENTS)
    assert {attempt_of(row) for row, *_ in entries} == set(ROWS.values())


@pytest.mark.parametrize(("row", "gradient", "entry"), table())
def test_the_entry_holds(row, gradient, entry):
    attempt, model = attempt_of(row), Model(GRADIENTS[gradient], SOLVERS["fixed point"])
    if entry == "yes":
        attempt(model)
        return
    assert entry == "refused"
    reason = REASONS.get(attempt, "the Jacobian of a map cannot be taken under fullgraph=True")
    with pytest.raises(Exception, match=reason):
        attempt(model)


in_one_graph = partial(fullgraph, backend="eager")  # half of the time


@pytest.mark.parametrize("attempt", [transformed, over_samples, without_values])
@pytest.mark.parametrize("name", ["anderson", "broyden", "steps", "reversible"])
def test_other_solvers(attempt, name):
    attempt(Model(GRADIENTS["UPG"], SOLVERS[name]))


@pytest.mark.parametrize("name", ["anderson", "broyden"])
def test_solvers_that_write_into_their_memory_in_one_graph(name):
    fullgraph(Model(GRADIENTS["UPG"], SOLVERS[name]))


@pytest.mark.parametrize("name", ["steps", "reversible"])
def test_other_solvers_in_one_graph(name):
    in_one_graph(Model(GRADIENTS["UPG"], SOLVERS[name]))


def test_an_export_of_another_solver():
    exported(Model(GRADIENTS["UPG"], SOLVERS["broyden"]))


@pytest.mark.parametrize("attempt", [fullgraph, without_values])
def test_backpropagation_through_the_reversible_solver(attempt):
    attempt(Model(GRADIENTS["BPTT"], SOLVERS["reversible"]))


def test_the_reversible_solver_is_not_recorded_in_transforms():
    with pytest.raises(RuntimeError, match="not recorded in a transform"):
        transformed(Model(GRADIENTS["BPTT"], SOLVERS["reversible"]))


@pytest.mark.parametrize(
    "gradient",
    [pg.ImplicitGradient(order=2), pg.UnrolledPhantomGradient(2, "adaptive")],
    ids=["order 2", "adaptive damping"],
)
def test_estimators_that_need_the_jacobian_are_refused_in_one_graph(gradient):
    with pytest.raises(Exception, match="cannot be taken under fullgraph=True"):
        in_one_graph(Model(gradient, SOLVERS["steps"]))


def test_states_on_the_way_are_part_of_the_graph():
    class Supervised(Model):
        def forward(self, x):
            return torch.stack(self.deq(self.inject(x), record_at=(1,)).z)

    in_one_graph(Supervised(GRADIENTS["UPG"], SOLVERS["fixed point"]))


def test_weight_norm_that_comes_later():
    model = Model(GRADIENTS["UPG"], SOLVERS["fixed point"], TanhCell())
    weight_norm(model.deq.cell.linear)
    model.deq.fullgraph = True
    call = torch.compile(model, backend="eager", fullgraph=True)
    assert_same(found(call, model), found(model, model))


def test_an_error_of_the_cell_in_one_graph_is_shown():
    model = Model(GRADIENTS["UPG"], SOLVERS["fixed point"], nn.Bilinear(4, 5, 4))
    model.deq.fullgraph = True
    with pytest.raises(Exception, match=r"(?i)bilinear"):
        torch.compile(model, backend="eager", fullgraph=True)(inputs())


def test_where_nothing_can_be_read_a_solve_spends_its_budget():
    model = Model(GRADIENTS["UPG"], pg.FixedPoint(max_evaluations=7, tol=0.5)).to("meta")
    calls = []
    model.deq.cell.register_forward_hook(lambda *_: calls.append(None))
    model(inputs().to("meta"))
    assert len(calls) == 7 + 2
