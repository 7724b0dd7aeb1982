"""IGNN's weights stay well-posed: the projection against its definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ignn_golden import IMPLICIT, SOLVER, close

from phantomgrad.models import GraphClassifier, ImplicitGraphLayer, project_rows_onto_l1_ball


@pytest.mark.parametrize("kappa", [0.3, 0.9])
def test_weights_are_well_posed_from_the_start_and_after_projection(kappa: float) -> None:
    model = GraphClassifier(3, 2, SOLVER, IMPLICIT, kappa=kappa)
    for layer in model.layers:
        assert layer.weight.abs().sum(dim=1).max() <= kappa + 1e-12
        with torch.no_grad():
            layer.weight.mul_(100)
    model.project_()
    for layer in model.layers:
        assert layer.weight.abs().sum(dim=1).max() <= kappa + 1e-12


def test_projection_takes_the_spectral_radius_of_the_graph() -> None:
    layer = ImplicitGraphLayer(3, 8, SOLVER, IMPLICIT, kappa=0.9)
    layer.project_(spectral_radius=3.0)
    assert layer.weight.abs().sum(dim=1).max() <= 0.3 + 1e-12


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan])
def test_projection_refuses_an_empty_ball(radius: float) -> None:
    with pytest.raises(ValueError, match="radius must be positive, got"):
        project_rows_onto_l1_ball(torch.ones(2, 2), radius)


numbers = st.floats(-10, 10, allow_nan=False, allow_subnormal=False)
matrices = st.integers(1, 6).flatmap(
    lambda columns: st.lists(
        st.lists(numbers, min_size=columns, max_size=columns), min_size=1, max_size=4
    )
)
radii = st.floats(0.05, 5.0)


@given(matrices, radii)
def test_projected_rows_lie_in_the_ball_and_stay_there(rows: Any, radius: float) -> None:
    w = torch.tensor(rows, dtype=torch.float64)
    projected = project_rows_onto_l1_ball(w, radius)
    assert projected.abs().sum(dim=1).max() <= radius * (1 + 1e-12)
    close(project_rows_onto_l1_ball(projected, radius), projected, 1e-13)
    inside = w.abs().sum(dim=1) <= radius
    assert torch.equal(projected[inside], w[inside])


@given(matrices, radii, st.integers(0, 2**31))
def test_no_point_of_the_ball_is_closer(rows: Any, radius: float, seed: int) -> None:
    w = torch.tensor(rows, dtype=torch.float64)
    p = project_rows_onto_l1_ball(w, radius)
    noise = torch.randn(50, *w.shape, generator=torch.Generator().manual_seed(seed))
    inside = radius * noise / noise.abs().sum(dim=2, keepdim=True)
    corners = radius * torch.eye(w.shape[1]).unsqueeze(1)
    for q in (inside, corners, -corners):
        assert ((w - p) * (q - p)).sum(dim=2).max() <= 1e-10
