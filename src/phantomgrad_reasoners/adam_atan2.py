"""Adam without an epsilon, in the variant with which recursive reasoners are trained."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from phantomgrad.checks import check_list, check_not_negative, check_rate


class AdamAtan2(Optimizer):
    r"""Adam with an arctangent in place of the quotient (Everett et al., 2024).

    .. math:: p \leftarrow (1 - \eta w) \, p - \frac{\eta}{1 - \beta_1^t} \,
              \mathrm{atan2}\Big(m, \sqrt{v / (1 - \beta_2^t)}\Big)

    with the moments m and v of Adam, the learning rate :math:`\eta` and the decoupled weight decay
    w. Steps are bounded and do not depend on the scale of the gradient. The correction of m is
    outside of the arctangent, as in the release of TRM; other packages have it inside.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 1.0,
    ) -> None:
        check_not_negative("lr", lr)
        check_not_negative("weight_decay", weight_decay)
        if len(check_list("betas", betas)) != 2:
            raise ValueError(f"betas must be two rates, got {betas}")
        for beta in betas:
            check_rate("betas", beta)
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have a gradient."""
        with torch.enable_grad():
            loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, **group)
        return loss

    def _update(
        self, p: Tensor, g: Tensor, *, lr: float, betas: Any, weight_decay: float, **_: Any
    ) -> None:
        state = self.state[p]
        if not state:
            state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        state["step"] += 1
        first, second = (1 - beta ** state["step"] for beta in betas)
        m = state["m"].lerp_(g, 1 - betas[0])
        v = state["v"].lerp_(g.square(), 1 - betas[1])
        p.mul_(1 - lr * weight_decay)
        p.sub_(torch.atan2(m, (v / second).sqrt_()), alpha=lr / first)
