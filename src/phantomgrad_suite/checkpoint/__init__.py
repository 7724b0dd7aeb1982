"""What lets a run be killed, stopped or spoiled at any moment, and lose nothing that matters."""

from phantomgrad_suite.checkpoint.finite import FiniteSteps
from phantomgrad_suite.checkpoint.place import LoaderPlace
from phantomgrad_suite.checkpoint.provenance import Provenance
from phantomgrad_suite.checkpoint.randomness import RandomState
from phantomgrad_suite.checkpoint.storage import WholeCheckpointIO
from phantomgrad_suite.checkpoint.timed import TimedCheckpoint

__all__ = [
    "FiniteSteps",
    "LoaderPlace",
    "Provenance",
    "RandomState",
    "TimedCheckpoint",
    "WholeCheckpointIO",
]
