"""The history of the bench: intervals, the last bench on the same processor, the exit status."""

from types import SimpleNamespace

import pytest

import history


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """A bench whose only case takes ``ratios`` times longer with torchdeq."""
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.csv")

    def run(date, ratios, processor="a"):
        seconds = {
            "torchdeq": {"seconds": {"outside f": {"samples": ratios}}},
            "ours": {"seconds": {"outside f": {"samples": [1.0] * len(ratios)}}},
        }
        solve = {"solver": "Broyden", "shape": [8, 16], **seconds}
        environment = {"processor": processor, "threads": 1, "accelerator": None, "git": "c0ffee"}
        numbers = {"solves": [solve], "steps": []}
        record = SimpleNamespace(finished=date, environment=environment, numbers=numbers)
        monkeypatch.setattr(history, "read_any", lambda path: record)
        return history.main(tmp_path / "record.json")

    return run


def test_a_bench_is_compared_with_the_last_on_the_same_processor(bench, capsys):
    for _ in range(2):  # the same record is kept once
        assert bench("2026-01-01", [2.0, 2.1, 2.2, 2.3, 2.4, 2.5]) == 0
    assert bench("2026-01-02", [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], processor="b") == 0
    assert bench("2026-01-03", [1.4, 1.5, 1.6, 1.7, 1.8, 2.2]) == 0  # the intervals overlap
    capsys.readouterr()
    assert bench("2026-01-04", [1.0, 1.0, 1.1, 1.2, 1.3, 1.3]) == 1
    printed = capsys.readouterr().out
    assert "Broyden, 8 x 16" in printed
    assert "1.65" in printed  # of January 3
    assert "slower than before: Broyden, 8 x 16" in printed
    assert len(history.HISTORY.read_text().splitlines()) == 1 + 4


def test_the_interval_of_six_rounds_reaches_from_the_least_to_the_largest(bench):
    assert history.interval([3.0, 1.0, 2.0, 6.0, 4.0, 5.0]) == {"low": 1, "ratio": 3.5, "high": 6}
