"""GMRES: known iterates, minimal residuals, exhausted spaces, and samples that fail."""

from dataclasses import replace

import pytest
import torch
from golden.adjoint import ZERO, V, adjoints, f
from problems import Counted, dense_jacobian, newton_equilibrium

from phantomgrad import GMRES

ALL = GMRES(max_evaluations=40, tol=0)


def product(matrix):
    """The linear map of each sample's matrix."""
    return lambda u: (matrix @ u.unsqueeze(2)).squeeze(2)


def norms(matrix, v, u):
    return torch.linalg.vector_norm(product(matrix)(u) + v - u, dim=1)


def matrices(kind, batch=4, size=12):
    """Matrices with radii up to 3, normal and not; rotations have an eigenvalue of one."""
    a = torch.randn(batch, size, size) / size**0.5
    return {
        "random": 0.9 * a,
        "expanding": 3 * a,
        "symmetric": a + a.mT,
        "rotation": torch.linalg.qr(a).Q,
        "nilpotent": 2 * a.triu(1),
    }[kind]


every_kind = pytest.mark.parametrize(
    "kind", ["random", "expanding", "symmetric", "rotation", "nilpotent"]
)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
def test_iterates_are_those_of_independent_code(m):
    """The residual is that of the iterate before the last step."""
    matrix = dense_jacobian(f, newton_equilibrium(f, ZERO)).mT
    before, after = ["u_exact"] * 2 if m == 5 else [f"gmres_{m}", f"gmres_{m}_plus_residual"]
    found = GMRES(max_evaluations=m, tol=0).solve_linear(product(matrix), V)
    tolerance = 1e-10 if m == 5 else 1e-12
    torch.testing.assert_close(found.z, adjoints(after), rtol=0, atol=tolerance)
    size = norms(matrix, V, adjoints(before)) / torch.linalg.vector_norm(adjoints(after), dim=1)
    torch.testing.assert_close(found.residual, size, rtol=0, atol=tolerance)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_residuals_are_minimal_and_never_grow(kind, dtype):
    """The reference is a dense least-squares problem in the powers of B, orthonormalised.

    For ``z = u + r`` with the residual ``r = v - B u`` of the least norm, ``v - B z = A r``.
    """
    matrix, v, before = matrices(kind), torch.randn(4, 12), torch.full((4,), torch.inf)
    b = torch.eye(12) - matrix
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    space = v.unsqueeze(2)
    for m in range(1, 13):
        solver = GMRES(max_evaluations=m, tol=0)
        solution = solver.solve_linear(product(matrix.to(dtype)), v.to(dtype))
        z = solution.z.double()
        fitted = b @ torch.linalg.qr(space).Q
        y = torch.linalg.lstsq(fitted, v.unsqueeze(2)).solution
        r = v - (fitted @ y).squeeze(2)
        torch.testing.assert_close(
            v - product(b)(z), product(matrix)(r), rtol=tolerance, atol=10 * tolerance
        )
        size = solution.residual.double() * torch.linalg.vector_norm(z, dim=1)
        least = torch.linalg.vector_norm(r, dim=1)
        torch.testing.assert_close(size, least, rtol=tolerance, atol=tolerance)
        assert (size <= before + tolerance).all()
        before = size
        space = torch.cat([space, b @ torch.linalg.qr(space).Q[:, :, -1:]], dim=2)
    if kind != "rotation":  # for which there is no solution
        assert (before < 10 * tolerance * torch.linalg.vector_norm(v, dim=1)).all()


def test_an_exhausted_space_ends_the_solve():
    """Two distinct eigenvalues are two products, four of them four; a scaled v is none at all."""
    matrix = torch.diag_embed(torch.tensor([[0.5, 0.5, -2.0, -2.0], [0.5, 3.0, -2.0, 0.1]]))
    op, v = Counted(product(matrix)), torch.randn(2, 4)
    solution = ALL.solve_linear(op, v)
    assert solution.evaluations.tolist() == [2, 4]
    assert op.calls == 4
    expected = torch.linalg.solve(torch.eye(4) - matrix, v)
    torch.testing.assert_close(solution.z, expected, rtol=1e-12, atol=1e-12)


def test_a_singular_equation_keeps_what_it_found():
    """``u = u + v`` has no solution: no step helps, and v, the one-step gradient, is returned."""
    v = torch.randn(2, 3)
    solution = ALL.solve_linear(lambda u: u, v)
    torch.testing.assert_close(solution.z, v)
    assert not (solution.converged | solution.diverged).any()


def test_rounding_is_not_taken_for_a_new_direction():
    """A and I differ by a matrix of rank one: a second direction is rounding of the first."""
    for seed in range(20):
        torch.manual_seed(seed)
        r = torch.randn(1, 64, 64)
        solution = GMRES().solve_linear(product(torch.eye(64) - r[:, :, :1] @ r[:, :1]), r[:, 1])
        assert solution.z.norm() < 1e6 or not solution.converged


def test_one_product_that_finds_nothing_leaves_the_one_step_gradient():
    """``B v`` is orthogonal to v, so that no multiple of v reduces the residual."""
    matrix, v = torch.tensor([[[1.0, -1.0], [1.0, 1.0]]]), torch.randn(1, 2)
    solution = GMRES(max_evaluations=1, tol=0).solve_linear(product(matrix), v)
    torch.testing.assert_close(solution.z, v)
    torch.testing.assert_close(solution.residual, torch.ones(1))


@every_kind
def test_each_sample_alone_is_the_same_as_in_a_batch(kind):
    """Samples stop after different numbers of products."""
    matrix, v = matrices(kind), torch.randn(4, 12)
    matrix[1] *= 0.01
    v[2] = 0
    solver = GMRES(max_evaluations=9, tol=1e-5)
    together = solver.solve_linear(product(matrix), v)
    assert together.evaluations.unique().numel() > 2
    for i in range(4):
        alone = solver.solve_linear(product(matrix[i : i + 1]), v[i : i + 1])
        assert alone.evaluations.item() == together.evaluations[i].item()
        torch.testing.assert_close(alone.z[0], together.z[i], rtol=1e-13, atol=1e-13)
    assert together.converged[2]
    assert not together.z[2].any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("after", [0, 2])
def test_a_product_that_is_not_finite_stops_its_sample_only(bad, after):
    matrix, v = matrices("random"), torch.randn(4, 12)
    calls = 0

    def op(u):
        nonlocal calls
        out, calls = product(matrix)(u), calls + 1
        if calls > after:
            out[1, 3] = bad
        return out

    solver = GMRES(max_evaluations=6, tol=0)
    solution, clean = solver.solve_linear(op, v), solver.solve_linear(product(matrix), v)
    kept = (
        v
        if after == 0
        else replace(solver, max_evaluations=after).solve_linear(product(matrix), v).z
    )
    others = [0, 2, 3]
    torch.testing.assert_close(solution.z[others], clean.z[others], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(solution.z[1], kept[1], rtol=1e-13, atol=1e-13)
    assert solution.diverged.tolist() == [False, True, False, False]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_right_hand_side_that_is_not_finite_is_reported(bad):
    matrix, v = matrices("random"), torch.randn(4, 12)
    clean, v[1, 3] = ALL.solve_linear(product(matrix), v), bad
    solution = ALL.solve_linear(product(matrix), v)
    assert solution.diverged.tolist() == [False, True, False, False]
    assert solution.residual[1] == torch.inf
    assert solution.evaluations[1] == 0
    others = [0, 2, 3]
    torch.testing.assert_close(solution.z[others], clean.z[others], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images_in_half_precision(layout):
    v = torch.randn(2, 3, 4, 5).bfloat16().to(memory_format=layout)
    solution = GMRES(max_evaluations=8, tol=0.01).solve_linear(lambda u: -0.5 * u.flip(1), v)
    assert solution.z.dtype == torch.bfloat16
    u = solution.z.double()
    torch.testing.assert_close(u + 0.5 * u.flip(1), v.double(), rtol=0, atol=0.05)
