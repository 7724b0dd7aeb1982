"""Puzzles by deep supervision: an optimizer step after each of several segments of reasoning."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils._pytree import tree_map

from phantomgrad.checks import check_at_least, check_choice, check_rate
from phantomgrad.solvers.base import per_sample
from phantomgrad_reasoners.puzzles import IGNORED, PuzzleBatch
from phantomgrad_suite.checkpoint.distributed import of_all_processes, of_this_process
from phantomgrad_suite.tasks.base import Task
from phantomgrad_suite.tasks.means import Means


def log_stablemax(logits: Tensor) -> Tensor:
    r"""Return log-probabilities over the last dimension (Prieto et al., 2025).

    .. math:: p_i = \frac{s(a_i)}{\sum_j s(a_j)}, \qquad
              s(a) = a + 1 \; (a \ge 0), \quad \frac{1}{1 - a} \; (a < 0)

    so that :math:`\log s(a) = \mathrm{sgn}(a) \log(1 + |a|)`: logits have to grow exponentially
    where those of softmax grow linearly. In half precision it is computed in float32.
    """
    a = logits.to(torch.promote_types(logits.dtype, torch.float32))
    sign = torch.ones_like(a).copysign(a)  # abs(a) would have no derivative at zero
    logs = sign * torch.log1p(sign * a)
    return logs - logs.logsumexp(dim=-1, keepdim=True)


def weight_average(model: nn.Module, decay: float = 0.999, warmup: bool = False) -> AveragedModel:
    r"""Return a copy of ``model`` whose parameters average those of ``model``.

    After each optimizer step t = 1, 2, ..., ``update_parameters(model)`` makes them

    .. math:: \bar p_t = d_t \bar p_{t-1} + (1 - d_t) \, p_t, \qquad
              d_t = d, \quad \text{or with warm-up} \quad \min\Big(d, \frac{t + 1}{t + 10}\Big) ,

    from the initial weights on. With d = 0.999 these count for the first few thousand steps: a
    shorter run needs the warm-up. The count t is saved with the weights; buffers are copied.
    """
    check_rate("decay", decay)
    average = AveragedModel(model, multi_avg_fn=partial(_update, decay=decay, warmup=warmup))
    average.n_averaged += 1  # a copy of the initial weights
    return average.requires_grad_(False)


def _update(averages: Any, current: Any, step: Tensor | int, *, decay: float, warmup: bool) -> None:
    t = int(step)
    d = min(decay, (t + 1) / (t + 10)) if warmup else decay
    get_ema_multi_avg_fn(d)(averages, current, step)  # type: ignore[no-untyped-call]


_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda a: a.to(torch.promote_types(a.dtype, torch.float32)).log_softmax(dim=-1),
    "stablemax": log_stablemax,
}


_ACCURACIES = ("exact_accuracy", "cell_accuracy")


class Carry(NamedTuple):
    """The puzzle that each row of a batch is solving, and how far it got, ``(B, ...)`` each."""

    inputs: Tensor
    targets: Tensor
    state: Any  # of the model
    steps: Tensor  # segments so far
    halted: Tensor  # the next batch replaces this puzzle


class Reasoning(Task):
    r"""Deep supervision (Wang et al., 2025): a loss and an optimizer step for each segment.

    A row of the batch keeps its puzzle, and the state that the model has reached, until it halts:
    after ``segments``, or with ``halting`` as soon as the model's halting logit q is positive. Then
    the row of the next batch replaces it; the other rows of that batch are not used. The loss is

    .. math:: \frac{1}{B} \sum_b \Big( \frac{1}{L_b} \sum_{i \le L_b} -\log p(w_i)
              + \frac{1}{2} \mathrm{BCE}(q_b, \text{all of } b \text{ is right}) \Big) ,

    where the second term belongs to ``halting``. Evaluation takes all segments for each puzzle,
    with averaged weights, and never halts. ``exact_accuracy`` is the share of puzzles with every
    labelled cell right, ``cell_accuracy`` that of the cells.

    Args:
        segments: number of segments for each puzzle; with ``halting``, the largest one in training.
            Without, the rows of the first batch begin at different counts, so that they do not all
            halt together.
        halting: stop when the model says so (adaptive computation time).
        exploration: the probability with which, in a step, a row may not halt before a number of
            segments drawn from 2 to ``segments``.
        loss: the probabilities, ``softmax`` or ``stablemax``.
        averaging: decay of the averaged weights; ``None`` evaluates the last ones.
        averaging_warmup: shorter averages at first, see :func:`.weight_average`.
        evaluated_segments: evaluate ``exact_accuracy_at_<n>`` and ``cell_accuracy_at_<n>`` after n
            segments as well.
    """

    batch_type = PuzzleBatch

    def __init__(
        self,
        *,
        segments: int = 16,
        halting: bool = False,
        exploration: float = 0.1,
        loss: str = "softmax",
        averaging: float | None = 0.999,
        averaging_warmup: bool = True,
        evaluated_segments: Sequence[int] = (),
        metric: str = "exact_accuracy",
        **task: Any,
    ) -> None:
        super().__init__(metric=metric, **task)
        if not hasattr(self.model, "start"):
            raise ValueError(
                "model must have a method start(inputs), as RecursiveReasoner has, "
                f"got {type(self.model).__name__}"
            )
        check_at_least("segments", segments, 2 if halting else 1)
        check_rate("exploration", exploration)
        check_choice("loss", loss, tuple(_LOSSES))
        for count in evaluated_segments:
            check_at_least("evaluated_segments", count, 1)
        self.segments, self._halting, self._exploration = segments, halting, exploration
        self._log_probabilities = _LOSSES[loss]
        self._evaluated = {*evaluated_segments, segments}
        self.average = (
            None if averaging is None else weight_average(self.model, averaging, averaging_warmup)
        )
        names = ["loss", *(self._at(name, n) for name in _ACCURACIES for n in self._evaluated)]
        self._scores = Means(f"{part}/{name}" for part in self.evaluation_sets for name in names)
        self._carry: Carry | None = None

    @property
    def evaluated(self) -> nn.Module:
        """The model with averaged weights, if there are any."""
        return self.model if self.average is None else self.average.module

    def _at(self, name: str, segment: int) -> str:
        return name + (f"_at_{segment}" if segment != self.segments else "")

    def training_loss(self, batch: PuzzleBatch) -> tuple[Tensor, int]:
        carry = self._renewed(batch)
        answer = self.apply_model(carry.inputs, carry.state)
        losses, right, labelled = self.marked(answer.logits, carry.targets)
        loss = losses.mean()
        solved = (right | ~labelled).all(dim=1)
        halted = carry.steps >= self.segments
        if self._halting:
            logits = answer.halting.float()
            loss = loss + 0.5 * F.binary_cross_entropy_with_logits(logits, solved.float())
            halted |= (logits > 0) & (carry.steps >= self._least(len(logits)).to(logits.device))
        self._carry = carry._replace(state=answer.state, halted=halted)
        self._add("train/exact_accuracy", solved.float().mean(), len(solved))
        self._add("train/segments", carry.steps.float().mean(), len(solved))
        return loss, len(solved)

    def _renewed(self, batch: PuzzleBatch) -> Carry:
        """Return the carry with new puzzles in the rows that have halted."""
        model: Any = self.model
        start = model.start(batch.inputs)
        rows, device = len(batch.inputs), batch.inputs.device
        if (old := self._carry) is None:
            steps = torch.arange(rows, device=device) % self.segments
            steps = steps * (not self._halting) + 1
            return Carry(*batch, start, steps, torch.zeros_like(steps, dtype=torch.bool))
        old = tree_map(lambda tensor: tensor.to(device), old)  # one from a checkpoint is on the CPU
        old = old._replace(steps=old.steps + 1)
        new = Carry(*batch, start, torch.ones_like(old.steps), torch.zeros_like(old.halted))
        return Carry(*tree_map(lambda a, b: torch.where(per_sample(old.halted, a), a, b), new, old))

    def _least(self, rows: int) -> Tensor:
        """Draw how many segments each row must have taken before it may halt, on the CPU."""
        explores = torch.rand(rows) < self._exploration
        return torch.randint(2, self.segments + 1, (rows,)) * explores

    def marked(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean loss of each row, which cells are right, and which have a label."""
        labelled = targets != IGNORED
        losses = F.nll_loss(
            self._log_probabilities(logits).mT, targets, ignore_index=IGNORED, reduction="none"
        )
        return (
            losses.sum(dim=1) / labelled.sum(dim=1).clamp_min(1),
            (logits.argmax(dim=-1) == targets) & labelled,
            labelled,
        )

    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        """Update the model, then the averaged weights."""
        super().optimizer_step(*arguments, **options)
        if self.average is not None:
            self.average.update_parameters(self.model)

    def validation_step(self, batch: PuzzleBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        part = self.evaluation_sets[dataloader_idx]
        state = None
        for segment in range(1, max(self._evaluated) + 1):
            answer = self.evaluated(batch.inputs, state)
            state = answer.state
            if segment in self._evaluated:
                losses, right, labelled = self.marked(answer.logits, batch.targets)
                exact, cell = (self._at(name, segment) for name in _ACCURACIES)
                self._scores.add(f"{part}/{exact}", (right | ~labelled).all(dim=1).float())
                self._scores.add(f"{part}/{cell}", right[labelled].float())
            if segment == self.segments:
                self._scores.add(f"{part}/loss", losses)

    def on_validation_epoch_end(self) -> None:
        for name, score in self._scores.take().items():
            if not name.endswith("/loss") or name == "validation/loss":
                self.log(name, score, sync_dist=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self._carry is not None:
            carry = tree_map(lambda tensor: tensor.cpu(), tuple(self._carry))
            checkpoint["carry"] = of_all_processes(carry)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if "carry" in checkpoint:
            self._carry = Carry(*of_this_process(checkpoint["carry"]))
