"""What lets a run be interrupted at any moment and resume with the same result."""

from phantomgrad_suite.checkpoint.finite import FiniteSteps
from phantomgrad_suite.checkpoint.state import RunState
from phantomgrad_suite.checkpoint.storage import WholeCheckpointIO
from phantomgrad_suite.checkpoint.timed import TimedCheckpoint

__all__ = [
    "FiniteSteps",
    "RunState",
    "TimedCheckpoint",
    "WholeCheckpointIO",
]
