"""The inverse that Broyden's method leaves, against dense matrices."""

from dataclasses import replace

import pytest
import torch
from golden.adjoint import NUMBERS, ZERO, V, f
from problems import contraction
from solvers.test_broyden import DenseBroyden

from phantomgrad import Broyden


def dense(solution):
    """``-H``, by products with unit vectors, ``(B, D, D)``."""
    batch, size = solution.z.shape
    unit = torch.eye(size).unsqueeze(1).expand(size, batch, size)
    return torch.stack([solution.inverse.transposed(e) for e in unit], dim=1)


def kept(solver, evaluations):
    return replace(solver, max_evaluations=evaluations, keep_inverse=True).solve(stiff, START)


START = torch.linspace(-1, 1, 24, dtype=torch.float64).view(4, 6)


def stiff(z):
    """Of norm 3, so residuals rise at times."""
    return torch.tanh(z @ contraction(1, 6, 3.0)[0].mT + torch.linspace(-1, 1, 6))


@pytest.mark.parametrize("case", NUMBERS["cases"], ids=lambda case: f"k={case['k']}")
def test_inverse_and_steps_are_those_of_independent_code(case):
    k, samples = case["k"], case["samples"]
    solver = Broyden(max_evaluations=k + 1, tol=0, keep_inverse=True)
    solution = solver.solve(f, ZERO)

    def expected(name):
        return torch.tensor([sample[name] for sample in samples], dtype=torch.float64)

    steps = torch.cat([expected("steps"), expected("d_k").unsqueeze(1)], dim=1)
    steps /= torch.linalg.vector_norm(steps, dim=2, keepdim=True)
    torch.testing.assert_close(solution.inverse.steps, steps, rtol=0, atol=1e-12)
    torch.testing.assert_close(dense(solution), -expected("H_k"), rtol=0, atol=1e-12)
    found = solution.inverse.transposed(V)
    torch.testing.assert_close(found, expected("minus_HT_v"), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "solver",
    [Broyden(tol=0), Broyden(tol=0, memory=4)],
    ids=str,
)
def test_it_is_the_dense_inverse_at_the_best_iterate(solver):
    """Of a best iterate before the last restart, it is the identity."""
    found, earlier = {n: dense(kept(solver, n)) for n in range(1, 12)}, 0
    for sample, start in enumerate(START):
        reference = DenseBroyden(stiff, solver.memory or 1000)
        points = torch.stack(reference.points(start, 11))
        trace = (stiff(points) - points).norm(dim=1) / stiff(points).norm(dim=1)
        for evaluations, inverses in found.items():
            best = int(trace[:evaluations].argmin())
            lost = solver.memory is not None and best < (evaluations - 1) // 5 * 5
            expected = -torch.eye(6) if lost else reference.inverses[best]
            torch.testing.assert_close(inverses[sample], -expected, rtol=0, atol=1e-9)
            earlier += best < evaluations - 1
    assert earlier >= 2


def test_a_voided_update_drops_out():
    solver = Broyden(max_evaluations=4, tol=0, keep_inverse=True)
    solution = solver.solve(lambda z: z + 1.0, torch.zeros(1, 1))
    assert dense(solution).item() == 1


def test_each_sample_alone_is_the_same_as_in_a_batch():
    """Samples that have converged do not use the steps that others still take."""
    x = torch.tensor([0.1, 0.3, 1.0, 8.0]).unsqueeze(1) * torch.linspace(-1, 1, 30)
    weight, v = contraction(1, 30, 1.3)[0], torch.randn(4, 30)
    solver = Broyden(max_evaluations=20, tol=1e-2, keep_inverse=True)
    together = solver.solve(lambda z: torch.tanh(z @ weight.mT + x), 0.1 * v)
    assert together.evaluations.unique().numel() > 2
    inverse = together.inverse.transposed(v)
    for i in range(4):
        alone = solver.solve(lambda z, i=i: torch.tanh(z @ weight.mT + x[i]), 0.1 * v[i : i + 1])
        found = alone.inverse.transposed(v[i : i + 1])[0]
        torch.testing.assert_close(found, inverse[i], rtol=1e-13, atol=1e-13)


def test_small_states_in_single_precision():
    """The inverse does not depend on the scale of the states, whose steps shrink to 1e-14."""
    ramp = torch.linspace(-1, 1, 6)
    weight, v = contraction(1, 6, 0.9)[0], torch.randn(1, 6)
    solver = Broyden(max_evaluations=8, tol=0, keep_inverse=True)
    expected = solver.solve(lambda z: z @ weight.mT + ramp, torch.zeros(1, 6)).inverse
    small = solver.solve(
        lambda z: z @ weight.mT.float() + 1e-12 * ramp.float(), torch.zeros(1, 6).float()
    ).inverse
    found = small.transposed(v.float()).double()
    torch.testing.assert_close(found, expected.transposed(v), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("memory", [None, 3])
def test_a_sample_that_diverges_has_the_identity_and_disturbs_no_other(memory):
    v = torch.randn(4, 6)

    def broken(z):
        out, far = stiff(z), (z[1] - START[1]).norm() > 1
        out[1] = out[1] / (0.0 if far else 1.0)
        return out

    solver = Broyden(max_evaluations=8, tol=0, keep_inverse=True, memory=memory)
    solution, clean = solver.solve(broken, START), solver.solve(stiff, START)
    assert solution.diverged.tolist() == [False, True, False, False]
    found, expected = solution.inverse.transposed(v), clean.inverse.transposed(v)
    expected[1] = v[1]
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_keep_their_shape_and_precision(layout):
    z0 = torch.zeros(2, 3, 4, 5).bfloat16().to(memory_format=layout)
    solver = Broyden(max_evaluations=6, tol=0, keep_inverse=True)
    ramp = torch.linspace(-1, 1, 60).view(3, 4, 5).bfloat16()
    images = solver.solve(lambda z: 0.5 * torch.cos(z + ramp), z0)
    flat = solver.solve(
        lambda z: 0.5 * torch.cos(z + ramp.flatten()), torch.zeros(2, 60).bfloat16()
    )
    v = torch.randn(2, 3, 4, 5).bfloat16()
    found = images.inverse.transposed(v)
    assert found.dtype == v.dtype
    expected = flat.inverse.transposed(v.flatten(1)).view_as(v)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_keeping_the_inverse_changes_nothing_else():
    plain = Broyden(max_evaluations=9, tol=1e-3)
    solution, keeping = plain.solve(f, ZERO), replace(plain, keep_inverse=True).solve(f, ZERO)
    assert keeping.trace is solution.inverse is None
    torch.testing.assert_close(keeping[:5], solution[:5], rtol=0, atol=0)
