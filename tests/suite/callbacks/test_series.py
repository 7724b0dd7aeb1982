"""Series that a callback keeps: one value a point, through interruptions."""

from __future__ import annotations

import math

from phantomgrad_suite.callbacks import Series


def test_curves_have_a_value_for_each_point() -> None:
    series = Series()
    for values in ({"a": 1.0}, {"a": 2.0, "b": 3.0}, {"b": 4.0}):
        series.keep(values)
    curves = series.curves()
    assert (curves["a"][:2], curves["b"][1:]) == ([1, 2], [3, 4])
    assert math.isnan(curves["a"][2])
    assert math.isnan(curves["b"][0])


def test_series_goes_on_from_its_state() -> None:
    """What is kept after a checkpoint is not in it."""
    first, second = Series(), Series()
    first.keep({"a": 1.0})
    state = first.state_dict()
    first.keep({"a": 2.0})
    second.load_state_dict(state)
    second.keep({"a": 5.0, "b": 6.0})
    assert first.curves() == {"a": [1, 2]}
    assert second.curves()["a"] == [1, 5]
    assert second.curves()["b"][1:] == [6]


def test_curves_are_a_copy() -> None:
    series = Series()
    series.keep({"a": 1.0})
    series.curves()["a"].append(2.0)
    assert series.curves() == {"a": [1.0]}
