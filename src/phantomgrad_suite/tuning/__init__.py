"""Settings chosen on validation data: Optuna proposes, ordinary runs answer, records remain."""

from phantomgrad_suite.tuning.command import tune

__all__ = ["tune"]
