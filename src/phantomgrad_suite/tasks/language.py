"""Language modelling: prediction of the next word, segment by segment."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from phantomgrad.checks import check_at_least, check_list
from phantomgrad.models import Memory
from phantomgrad.solvers import Solver
from phantomgrad_suite.checkpoint.distributed import of_all_processes, of_this_process
from phantomgrad_suite.data.text.streams import TokenBatch
from phantomgrad_suite.tasks.base import Task
from phantomgrad_suite.tasks.means import Means


class LanguageModelling(Task):
    r"""Mean negative log-likelihood of the next word, and perplexity.

    .. math:: \mathrm{perplexity} = \exp\Big(-\frac{1}{N} \sum_{i=1}^{N} \log p(w_i)\Big)

    over the N predicted words of an evaluation set, ``<eos>`` and ``<unk>`` included.

    Args:
        evaluation_memory: positions that the model remembers in evaluation; ``None`` for its own.
        other_memories: further lengths for the test set, logged as ``test/perplexity_at_480``.
        other_solvers: further solvers for the test set, by name: that of ``{"short": Steps(2)}`` is
            logged as ``test/perplexity_short``.
        evaluate_pretrained: during pretraining, evaluate the unrolled network as in the official
            code; else always solve for the equilibrium.
    """

    batch_type = TokenBatch

    def __init__(
        self,
        *,
        evaluation_memory: int | None = None,
        other_memories: Sequence[int] = (),
        other_solvers: Mapping[str, Solver] | None = None,
        pretraining_steps: int | float = 0,
        pretraining_layers: int = 2,
        evaluate_pretrained: bool = True,
        metric: str = "perplexity",
        **task: Any,
    ) -> None:
        super().__init__(metric=metric, metric_mode="min", **task)
        self.pretrain(pretraining_steps, pretraining_layers)
        check_at_least("evaluation_memory", evaluation_memory or 0, 0)
        check_list("other_memories", other_memories)
        for length in other_memories:
            check_at_least("other_memories", length, 0)
        self._evaluate_pretrained = evaluate_pretrained
        # The suffix of each metric of an evaluation set, and options of the model.
        own: dict[str, Any] = {"memory_length": evaluation_memory}
        alone = {"": own}
        several = alone | {f"_at_{n}": {"memory_length": n} for n in other_memories}
        others = (other_solvers or {}).items()
        several |= {f"_{name}": {**own, "solver": solver} for name, solver in others}
        self._evaluations = {
            name: alone if name == "validation" else several for name in self.evaluation_sets
        }
        keys = [name + at for name, each in self._evaluations.items() for at in each]
        self._losses = Means(keys)
        self._memory: dict[str, Memory] = {}

    def training_loss(self, batch: TokenBatch) -> tuple[Tensor, int]:
        losses = self._word_losses(batch, "train", unrolled=self.unrolled_layers)
        return losses.mean(), batch.targets.numel()

    def validation_step(self, batch: TokenBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        name = self.evaluation_sets[dataloader_idx]
        layers = self.unrolled_layers if self._evaluate_pretrained else 0
        for at, options in self._evaluations[name].items():
            losses = self._word_losses(batch, name + at, unrolled=layers, **options)
            self._losses.add(name + at, losses)

    def on_validation_epoch_end(self) -> None:
        means = self._losses.take()
        for name, each in self._evaluations.items():
            metrics = {f"{name}/perplexity{at}": means[name + at].exp() for at in each}
            if name == "validation":
                metrics["validation/loss"] = means[name]
            self.log_dict(metrics, sync_dist=True)
        for key in means:
            self._memory.pop(key, None)

    def _word_losses(self, batch: TokenBatch, key: str, **options: Any) -> Tensor:
        """Return the loss of each word, ``(B, L)``, and keep the memory under ``key``."""
        memory = None if batch.first else self._memory.get(key)
        if memory is not None:  # one from a checkpoint is on the CPU
            memory = Memory(*(part.to(batch.tokens.device) for part in memory))
        losses, self._memory[key] = self.apply_model(batch.tokens, batch.targets, memory, **options)
        return losses.to(torch.promote_types(losses.dtype, torch.float32))  # type: ignore[no-any-return]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if "train" in self._memory:
            memory = tuple(part.cpu() for part in self._memory["train"])
            checkpoint["memory"] = of_all_processes(memory)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if "memory" in checkpoint:
            self._memory["train"] = Memory(*of_this_process(checkpoint["memory"]))
