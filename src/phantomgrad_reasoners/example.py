"""A puzzle and the answers of a reasoner after each segment."""

from typing import Any

from lightning import LightningModule, Trainer

from phantomgrad.checks import check_at_least
from phantomgrad_reasoners.puzzles import PuzzleBatch
from phantomgrad_reasoners.traces import trace
from phantomgrad_suite.callbacks.curves import Series

_TRIED = 256  # test puzzles


class Example(Series):
    """A test puzzle as ``example/inputs``, ``example/targets`` and ``example/segment<n>``.

    The curves are the token ids of its cells. When the run ends, one of the first 256 test puzzles
    is chosen: that with the most wrong cells on the way to the right answer, or the first one if
    none is solved.
    """

    def __init__(self, segments: int) -> None:
        super().__init__()
        check_at_least("segments", segments, 1)
        self._segments = segments

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        task: Any = pl_module
        task.evaluated.eval()  # the depth of training may be random
        test = trainer.datamodule.parts["test"]  # type: ignore[attr-defined]
        tried = test.__getitems__([*range(min(_TRIED, len(test)))])
        puzzles = PuzzleBatch(*(tokens.to(task.device) for tokens in tried))
        answers = trace(task.evaluated, [puzzles], self._segments).answers  # (segments, B, S)
        wrong = (answers != puzzles.targets).sum(dim=2)
        # Plus 1: a puzzle that is solved at once comes before one that never is.
        shown = int(((1 + wrong.sum(dim=0)) * (wrong[-1] == 0)).argmax())
        named = {f"segment{n}": tokens for n, tokens in enumerate(answers, start=1)}
        for name, tokens in {**puzzles._asdict(), **named}.items():
            self.curves[f"example/{name}"] = tokens[shown].tolist()
