"""Recursive reasoners (TRM, HRM, EqR): the network, the recursion as a map, the model."""

from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from phantomgrad.checks import (
    ShapeError,
    check_at_least,
    check_choice,
    check_damping,
    check_not_negative,
    check_tokens,
)
from phantomgrad.deq import DEQ
from phantomgrad.gradients import GradientEstimator
from phantomgrad.solvers import Solver


class SwiGLU(nn.Module):
    r"""The gated map :math:`W_2 \, (\mathrm{silu}(W_g x) \odot W_u x)` of vectors ``(..., p)``.

    Its inner width is 8 p / 3, rounded up to a multiple of ``multiple``.
    """

    def __init__(self, width: int, multiple: int) -> None:
        super().__init__()
        inner = -(-round(8 * width / 3) // multiple) * multiple
        self.gate_up = Linear(width, 2 * inner)
        self.down = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., p)``."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


class RotaryAttention(nn.Module):
    """Self-attention with rotary embeddings (Su et al., 2021), ``causal`` or of all positions.

    It is torch's fused attention, which has no second derivative: for Jacobian regularisation
    choose ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``.
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = Linear(width, 3 * width)
        self.output = Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        """Return what each position reads, ``(B, S, D)``."""
        parts = self.qkv(h).unflatten(-1, (3, self.heads, -1))  # (B, S, 3, heads, d_h)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # (B, heads, S, d_h)
        mean = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=self.causal)
        return self.output(mean.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class ReasoningBlock(nn.Module):
    r"""Mixing of positions, then a :class:`SwiGLU` of each, with norms after the residuals.

    .. math:: h \leftarrow \mathrm{RMS}(h + \mathrm{mix}(h)), \qquad
              h \leftarrow \mathrm{RMS}(h + \mathrm{SwiGLU}(h))

    ``mix`` is :class:`RotaryAttention`, or a :class:`SwiGLU` of the S positions of each channel,
    after which the norm, too, is over positions. RMS has no gain.
    """

    def __init__(self, width: int, mixer: nn.Module, multiple: int) -> None:
        super().__init__()
        self.mixer = mixer
        self.feed_forward = SwiGLU(width, multiple)

    def forward(self, h: Tensor) -> Tensor:
        """Return ``(B, S, D)`` of ``(B, S, D)``."""
        if isinstance(self.mixer, SwiGLU):
            t = h.mT  # (B, D, S)
            h = _normalized(t + self.mixer(t)).mT
        else:
            h = _normalized(h + self.mixer(h))
        return _normalized(h + self.feed_forward(h))


class RecursiveNetwork(nn.Module):
    r"""The network g of one elementary step, and the single-latent map H.

    .. math:: h \mapsto (1 - w) \, h + w \, g(h + c) + \varepsilon

    for a state h and an injection c, with ``blocks`` of :class:`ReasoningBlock` as g, the
    ``damping`` w in (0, 1], and noise :math:`\varepsilon` if it is passed. With the puzzle as
    injection, this is the map H of a single latent, a cell of :class:`phantomgrad.DEQ`.

    Args:
        width: D.
        positions: S, to which the position MLP is bound; attention takes any number.
        mixer: ``"mlp"`` or ``"attention"``, see :class:`ReasoningBlock`.
        heads: of the attention.
        multiple: the inner widths of a :class:`SwiGLU` are multiples of it. With 256, as published,
            most of a small model is the position MLP.
    """

    def __init__(
        self,
        width: int,
        positions: int,
        *,
        mixer: Literal["mlp", "attention"] = "mlp",
        blocks: int = 2,
        heads: int = 8,
        multiple: int = 256,
        damping: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("mixer", mixer, ("mlp", "attention"))
        sizes = {"width": width, "positions": positions, "blocks": blocks, "multiple": multiple}
        for name, value in (sizes | {"heads": heads}).items():
            check_at_least(name, value, 1)
        if mixer == "attention" and width % (2 * heads):
            raise ValueError(f"width must be a multiple of 2 heads = {2 * heads}, got {width}")
        check_damping(damping)
        self.positions = positions if mixer == "mlp" else None
        self.damping = damping

        def mix() -> nn.Module:
            return SwiGLU(positions, multiple) if mixer == "mlp" else RotaryAttention(width, heads)

        self.blocks = nn.Sequential(
            *(ReasoningBlock(width, mix(), multiple) for _ in range(blocks))
        )

    def forward(self, state: Tensor, injection: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return the next state, all ``(B, S, D)``."""
        after: Tensor = self.blocks(state + injection)
        if self.damping != 1.0:
            after = torch.lerp(state, after.to(state.dtype), self.damping)
        return after if noise is None else after + noise


class Linear(nn.Linear):
    """A linear map without a bias; its entries have the variance 1 / inputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self) -> None:
        """Draw the entries anew."""
        truncated_normal_(self.weight, self.in_features**-0.5)


def truncated_normal_(
    tensor: Tensor, std: float, generator: torch.Generator | None = None
) -> Tensor:
    """Fill ``tensor`` from a normal distribution cut at two sigma, with standard deviation ``std``.

    (The ``std`` of ``torch.nn.init.trunc_normal_`` is that before the cut, 1.137 times as large.)
    """
    sigma = std / 0.8796256610342398
    return nn.init.trunc_normal_(tensor, 0.0, sigma, -2 * sigma, 2 * sigma, generator)


def rotated(x: Tensor) -> Tensor:
    r"""Return queries or keys ``(..., S, d)`` turned by angles that grow with the position.

    Entries i and i + d/2 of position p form a plane, rotated by :math:`p \, 10000^{-2 i / d}`.
    """
    half, dtype = x.shape[-1] // 2, torch.promote_types(x.dtype, torch.float32)
    frequencies = 10_000 ** -(torch.arange(half, device=x.device, dtype=dtype) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=dtype)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()  # (S, d / 2)
    first, second = x.chunk(2, dim=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat(turned, dim=-1).to(x.dtype)


def _normalized(h: Tensor) -> Tensor:
    return F.rms_norm(h, h.shape[-1:], eps=1e-5)


class RecursiveCell(nn.Module):
    r"""One recursion :math:`G_n` of the pair (y, z), the answer and the latent.

    .. math:: z \leftarrow g(z + y + x) \quad n \text{ times}, \qquad \text{then} \quad
              y \leftarrow h(y + z)

    x is added only where z is updated. In TRM one network is both g and h. In HRM
    (arXiv:2506.21734) they are two: a cycle is n steps of the low-level module g on z, there
    :math:`z_L`, and one of the high-level module h on y, :math:`z_H`. The n + 1 elementary steps
    are damped and noisy as :class:`RecursiveNetwork` has it.

    Of these steps the last ``recorded`` are on the graph, by default all. ``recorded=2`` is the
    one-step gradient of HRM; with 1, x gets no gradient. With fewer than n + 1
    the graph is not that of the whole map. Then the only estimator is
    ``UnrolledPhantomGradient(1, 1.0)``: others need the Jacobian of the map, or several recorded
    applications of it, and are refused.

    Args:
        network: g.
        n: number of its steps.
        recorded: number of steps on the graph.
        high: h, by default g. With two networks ``recorded`` is at least 2.
    """

    def __init__(
        self,
        network: RecursiveNetwork,
        n: int = 6,
        recorded: int | None = None,
        high: RecursiveNetwork | None = None,
    ) -> None:
        super().__init__()
        check_at_least("n", n, 1)
        recorded = n + 1 if recorded is None else recorded
        check_at_least("recorded", recorded, 1)
        if recorded > n + 1:
            raise ValueError(f"recorded must be at most n + 1 = {n + 1}, got {recorded}")
        if high is not None and recorded < 2:
            raise ValueError(
                f"recorded must be at least 2 with two networks, for g to learn, got {recorded}"
            )
        self.network = network
        self.high = high
        self.n = n
        self.recorded = recorded

    def forward(
        self, state: tuple[Tensor, Tensor], x: Tensor, noise: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the next (y, z).

        Args:
            state: (y, z), each ``(B, S, D)``.
            x: the embedded puzzle, ``(B, S, D)``.
            noise: that of each step, ``(n + 1, B, S, D)``, the same in every recursion.
        """
        (y, z), unrecorded = state, self.n + 1 - self.recorded
        if unrecorded and torch.is_grad_enabled() and y.requires_grad:
            raise ValueError(
                f"recorded must be n + 1 = {self.n + 1} for a gradient that needs the Jacobian of "
                f"the cell or several applications of it, got {self.recorded}: use "
                "UnrolledPhantomGradient(1, 1.0)"
            )
        each = [None] * (self.n + 1) if noise is None else noise
        injection = y + x
        with torch.no_grad():
            for i in range(unrecorded):
                z = self.network(z, injection, each[i])
        for i in range(unrecorded, self.n):
            z = self.network(z, injection, each[i])
        return (self.high or self.network)(y, z, each[self.n]), z


class Answer(NamedTuple):
    """What a :class:`RecursiveReasoner` returns.

    Attributes:
        logits: of the token of each cell, ``(B, S, V)``.
        halting: logit of the probability that all cells are right, ``(B,)``.
        state: (y, z), or z, off the graph: where the next segment starts.
    """

    logits: Tensor
    halting: Tensor
    state: Any


class RecursiveReasoner(nn.Module):
    r"""A puzzle in, its solution out: one segment of recursions from a state to the next.

    .. math:: x = \sqrt{D} \, E_{\mathrm{token}}, \qquad (y, z) \leftarrow G_n^T(y, z; x), \qquad
              \mathrm{logits} = W y, \quad \mathrm{halting} = v^\top y_1 + b

    Deep supervision trains it with a loss and an optimizer step for each of several segments, each
    from the :attr:`Answer.state` of the one before. The defaults are those of TRM on Sudoku, where
    ``Steps(2)`` and ``UnrolledPhantomGradient(1, 1.0)`` make T = 3 recursions, the last one
    recorded; ``Steps(3)`` and ``BackpropThroughSolver()`` record all. Both take the same number of
    recursions in evaluation. Any other solver searches an equilibrium of G_n or H, which
    ``ImplicitGradient`` and ``NeumannPhantomGradient`` assume.

    Args:
        vocabulary: V, the number of tokens.
        positions: S, see :class:`RecursiveNetwork`.
        solver, gradient: of the :class:`phantomgrad.DEQ`.
        width: D.
        n: inner steps of a recursion; ``None`` for the single-latent map H, z <- g(z + x), whose
            answer is read from z.
        recorded: see :class:`RecursiveCell`.
        hierarchical: update y with a network of its own, as HRM does.
        noise: standard deviation of the Gaussian noise that is added in every elementary step, in
            evaluation too (EqR: 0.01, with a damping of 0.95). It is drawn once per pass, so that
            the map does not change during a solve; EqR draws new noise in every step.
        random_start: draw a new first state for each puzzle and cell, as EqR does, instead of
            starting all of them from one vector, which is saved with the model.
        network: see :class:`RecursiveNetwork`.
    """

    initial: Tensor

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        solver: Solver,
        gradient: GradientEstimator,
        *,
        width: int = 512,
        n: int | None = 6,
        recorded: int | None = None,
        hierarchical: bool = False,
        noise: float = 0.0,
        random_start: bool = False,
        **network: Any,
    ) -> None:
        super().__init__()
        check_at_least("vocabulary", vocabulary, 1)
        check_not_negative("noise", noise)
        if n is None and recorded is not None:
            raise ValueError(f"recorded must be None for a single latent (n=None), got {recorded}")
        if n is None and hierarchical:
            raise ValueError("hierarchical must be False for a single latent (n=None), got True")
        g = RecursiveNetwork(width, positions, **network)
        self.vocabulary, self.positions, self.n = vocabulary, g.positions, n
        self.noise, self.random_start = noise, random_start
        self.embedding = nn.Embedding(vocabulary, width)
        truncated_normal_(self.embedding.weight, width**-0.5)
        high = RecursiveNetwork(width, positions, **network) if hierarchical else None
        cell = g if n is None else RecursiveCell(g, n, recorded, high)
        self.deq = DEQ(cell, solver, gradient)
        self.output = Linear(width, vocabulary)
        # The second output, which only HRM reads, keeps the parameters those of the release.
        self.halting = nn.Linear(width, 2)
        nn.init.zeros_(self.halting.weight)
        nn.init.constant_(self.halting.bias, -5.0)
        latents = torch.empty(1 if n is None else 2, width)
        self.register_buffer("initial", truncated_normal_(latents, 1.0))

    def forward(
        self, tokens: Tensor, state: Any = None, *, generator: torch.Generator | None = None
    ) -> Answer:
        """Return the :class:`Answer` to puzzles ``(B, S)`` after one segment.

        Args:
            tokens: integers below the vocabulary.
            state: of the :class:`Answer` before, or by default :meth:`start`.
            generator: of the noise and of random starts; the same seed repeats the pass.
        """
        x = self.embed(tokens)
        state = self.start(tokens, generator) if state is None else state
        state = tuple(state) if isinstance(state, list) else state
        shapes = tree_map(lambda s: tuple(s.shape), state)
        expected = tuple(x.shape) if self.n is None else (tuple(x.shape),) * 2
        if shapes != expected:
            raise ShapeError(f"state must have the shapes {expected}, got {shapes}")
        state, _ = self.deq(*self.inputs(x, generator), z0=state)
        y = state if self.n is None else state[0]
        halting = self.halting(y[:, 0])[:, 0]
        return Answer(self.output(y), halting, tree_map(Tensor.detach, state))

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the injection x, ``(B, S, D)``, of puzzles ``(B, S)``."""
        check_tokens("tokens", tokens, self.vocabulary)
        if self.positions not in (None, tokens.shape[1]):
            raise ShapeError(f"tokens must be (B, {self.positions}), got {tuple(tokens.shape)}")
        return self.embedding(tokens.long()) * self.embedding.embedding_dim**0.5  # type: ignore[no-any-return]

    def inputs(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, ...]:
        """Return the inputs of the cell in one pass: x and, if ``noise`` is set, a draw of it."""
        if not self.noise:
            return (x,)
        steps = () if self.n is None else (self.n + 1,)
        noise = torch.empty(*steps, *x.shape, dtype=x.dtype, device=x.device)
        return x, noise.normal_(0, self.noise, generator=generator)

    def start(self, tokens: Tensor, generator: torch.Generator | None = None) -> Any:
        """Return the state before the first segment of puzzles ``(B, S)``."""
        batch, length = tokens.shape
        states = [v.repeat(batch, length, 1) for v in self.initial]
        if self.random_start:
            states = [truncated_normal_(s, 1.0, generator) for s in states]
        return states[0] if self.n is None else tuple(states)
