"""Table 2: what graphs hold, and which order measurements suggest. Nothing is timed here."""

import pytest
import torch

from phantomgrad_suite.studies import Complexity
from phantomgrad_suite.studies.complexity import fit
from phantomgrad_suite.studies.meters import Clock

CPU = torch.device("cpu")
TINY = {"size": 4, "rows": 2, "batch": 3}


def test_exact_polynomials_are_found():
    found = fit([1, 2, 5, 10], [3.5, 5.5, 11.5, 21.5], "k")
    assert (found["slope"], found["intercept"]) == (pytest.approx(2), pytest.approx(1.5))
    assert found["r2"] == pytest.approx(1)
    assert found["climbs"] == pytest.approx(18 / 21.5)
    assert found["order"] == "O(k)"
    for value in (0.0, 7.0):
        found = fit([1, 2, 5], [value] * 3, "K")
        assert (found["slope"], found["intercept"]) == (0, value)
        assert (found["climbs"], found["r2"], found["order"]) == (0, 1, "O(1)")


def test_what_is_recorded(monkeypatch):
    """Every method is recorded at every size; the clock counts the calls."""
    calls = iter(range(1000))
    monkeypatch.setattr(Clock, "time", lambda self, call: float(next(calls)))
    monkeypatch.setattr("phantomgrad_suite.studies.complexity.peak_bytes", lambda run, device: 640)
    study = Complexity(**TINY, steps=[1, 2, 3], budgets=[2, 3, 4], repeats=3)
    findings = study.measure(0, CPU)
    assert next(calls) == 12 * 3
    methods = {m["name"]: m for m in findings.numbers["methods"]}
    assert list(methods) == ["Implicit, fixed point", "Implicit, Broyden", "UPG", "NPG"]
    assert [m["variable"] for m in methods.values()] == ["K", "K", "k", "k"]
    assert [m["sizes"] for m in methods.values()] == [[2, 3, 4]] * 2 + [[1, 2, 3]] * 2
    # Three rounds over twelve cases: the median of a case is its turn in the second round.
    assert [m["seconds"] for m in methods.values()] == [
        [12.0, 13.0, 14.0],
        [15.0, 16.0, 17.0],
        [18.0, 19.0, 20.0],
        [21.0, 22.0, 23.0],
    ]
    assert methods["NPG"]["peak_bytes"] == [640] * 3
    step = 2 * 3 * 2 * 4 * 8  # a state before the nonlinearity and one after it, in float64
    assert methods["UPG"]["graph_bytes"] == [step, 2 * step, 3 * step]
    assert methods["NPG"]["graph_bytes"] == [step] * 3
    assert methods["UPG"]["fits"]["graph_bytes"]["order"] == "O(k)"
    for name in set(methods) - {"UPG"}:
        assert methods[name]["fits"]["graph_bytes"]["order"] == "O(1)"
    assert findings.numbers["state_bytes"] == 3 * 2 * 4 * 4
