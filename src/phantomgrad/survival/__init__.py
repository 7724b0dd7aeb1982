"""What lets a run be killed, stopped or spoiled at any moment, and lose nothing that matters."""

from phantomgrad.survival.finite import FiniteSteps
from phantomgrad.survival.place import LoaderPlace
from phantomgrad.survival.provenance import Provenance
from phantomgrad.survival.randomness import RandomState
from phantomgrad.survival.storage import WholeCheckpointIO
from phantomgrad.survival.timed import TimedCheckpoint

__all__ = [
    "FiniteSteps",
    "LoaderPlace",
    "Provenance",
    "RandomState",
    "TimedCheckpoint",
    "WholeCheckpointIO",
]
