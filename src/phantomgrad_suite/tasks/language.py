"""Language modelling: the next word, segment by segment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric

from phantomgrad.checks import check_at_least, check_list
from phantomgrad.models import Memory
from phantomgrad_suite.data.text.streams import Segments, TokenBatch
from phantomgrad_suite.runs.errors import UserError
from phantomgrad_suite.tasks.base import Task
from phantomgrad_suite.tasks.pretraining import Pretraining


class LanguageModelling(Task):
    r"""Mean negative log-likelihood of the next word, and perplexity.

    .. math:: \mathrm{perplexity} = \exp\Big(-\frac{1}{N} \sum_{i=1}^{N} \log p(w_i)\Big)

    over all predicted words of an evaluation set, by words, ``<eos>`` and ``<unk>`` included. What
    a segment leaves is handed to the next one of its streams. Training has a memory of its own,
    which outlives evaluations and is saved in checkpoints.

    Args:
        evaluation_memory: positions that the model remembers in evaluation; ``None`` for its own.
        other_memories: numbers of positions at which the evaluation sets, but the validation set,
            are evaluated once more, for ``test/perplexity_at_480`` and the like.
        pretraining_steps: see :class:`phantomgrad_suite.tasks.pretraining.Pretraining`.
        pretraining_layers: likewise.
        evaluate_pretrained: evaluate with these layers while the model is pretrained, as in the
            official code; else at the equilibrium from the start.
        metric: see :class:`phantomgrad_suite.tasks.Task`.
        task: likewise.
    """

    def __init__(
        self,
        *,
        evaluation_memory: int | None = None,
        other_memories: Sequence[int] = (),
        pretraining_steps: int = 0,
        pretraining_layers: int = 2,
        evaluate_pretrained: bool = True,
        metric: str = "perplexity",
        **task: Any,
    ) -> None:
        super().__init__(metric=metric, metric_mode="min", **task)
        check_at_least("evaluation_memory", evaluation_memory or 0, 0)
        self.pretraining = Pretraining(pretraining_steps, pretraining_layers)
        self._evaluation_memory, self._evaluate_pretrained = evaluation_memory, evaluate_pretrained
        check_list("other_memories", other_memories)
        for length in other_memories:
            check_at_least("other_memories", length, 0)
        self._other_memories = tuple(other_memories)
        parts = [part for name in self.evaluation_sets for part in self._parts(name)]
        self._losses = nn.ModuleDict({part: MeanMetric() for part in parts})
        self._memory: dict[str, Memory] = {}

    def on_train_start(self) -> None:
        """Refuse a memory that no stream can fill.

        Raises:
            UserError: it is as long as a stream.
        """
        own = getattr(self.model, "memory_length", 0)
        _check_memory("model.memory_length", own, self.trainer.train_dataloader)
        # In evaluation the model's own may be longer than a text: it is never full there.
        for loader in self.trainer.val_dataloaders or []:
            _check_memory("task.evaluation_memory", self._evaluation_memory or 0, loader)
            for length in self._other_memories:
                _check_memory("task.other_memories", length, loader)

    def training_loss(self, batch: TokenBatch) -> tuple[Tensor, int]:
        """Return the mean over the words of a segment, and their number."""
        layers = self.pretraining.layers_at(self.global_step)
        return self._losses_of(batch, "train", unrolled=layers).mean(), batch.targets.numel()

    def validation_step(self, batch: TokenBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Count the words of a segment."""
        name = self.evaluation_sets[dataloader_idx]
        layers = self.pretraining.layers_at(self.global_step) if self._evaluate_pretrained else 0
        for part, length in self._parts(name).items():
            losses = self._losses_of(batch, part, unrolled=layers, memory_length=length)
            self._losses[part].update(losses)  # type: ignore[operator]

    def _parts(self, name: str) -> dict[str, int | None]:
        """Return by what names, and at which memories, an evaluation set is evaluated."""
        others = () if name == "validation" else self._other_memories
        return {name: self._evaluation_memory} | {f"{name}_at_{n}": n for n in others}

    def on_validation_epoch_end(self) -> None:
        """Log the perplexities, and forget what evaluation has left."""
        for name in self.evaluation_sets:
            found = {}
            for part in self._parts(name):
                loss = self._losses[part].compute()  # type: ignore[operator]  # over all processes
                found[f"{name}/perplexity{part.removeprefix(name)}"] = loss.exp()
                if name == "validation":
                    found["validation/loss"] = loss
                self._losses[part].reset()  # type: ignore[operator]
                self._memory.pop(part, None)
            self.log_dict(found, sync_dist=True)

    def _losses_of(self, batch: TokenBatch, part: str, **options: Any) -> Tensor:
        """Return the loss of each word, ``(B, L)``, and remember the segment."""
        before = None if batch.first else self._memory.get(part)
        if before is not None:  # a checkpoint has left it on the CPU
            before = Memory(*(tensor.to(batch.tokens.device) for tensor in before))
        losses, self._memory[part] = self.model(batch.tokens, batch.targets, before, **options)
        return losses.to(torch.promote_types(losses.dtype, torch.float32))  # type: ignore[no-any-return]

    def carried(self, batch: TokenBatch) -> dict[str, Any]:
        """Return the memory that a segment continues, if it is not the first of its text."""
        memory = None if batch.first else self._memory.get("train")
        return {} if memory is None else {"memory": tuple(memory)}

    def carry(self, carried: dict[str, Any]) -> None:
        """Continue that memory, or none."""
        self._memory.pop("train", None)
        if "memory" in carried:
            self._memory["train"] = Memory(*carried["memory"])

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the training memory of every process."""
        super().on_save_checkpoint(checkpoint)
        memory = self._memory.get("train")
        if memory is not None:
            checkpoint["memory"] = [self.of_all_processes(part) for part in memory]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on with the memory of a checkpoint."""
        super().on_load_checkpoint(checkpoint)
        if "memory" in checkpoint:
            self._memory["train"] = Memory(*(p[self.global_rank] for p in checkpoint["memory"]))


def _check_memory(name: str, length: int, loader: Any) -> None:
    if isinstance(loader, Segments) and length >= loader.layout.length:
        raise UserError(
            f"{name} must be less than the {loader.layout.length} tokens of a stream of the "
            f"{loader.name} text, got {length}"
        )
