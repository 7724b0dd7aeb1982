"""The network of a recursive reasoner, whose states are ``(B, S, D)``."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phantomgrad.checks import check_at_least, check_choice, check_damping


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
    """Self-attention between all positions, with rotary embeddings (Su et al., 2021).

    It is torch's fused attention, which has no second derivative: for Jacobian regularisation
    choose ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = Linear(width, 3 * width)
        self.output = Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        """Return what each position reads, ``(B, S, D)``."""
        parts = self.qkv(h).unflatten(-1, (3, self.heads, -1))  # (B, S, 3, heads, d_h)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # (B, heads, S, d_h)
        mean = F.scaled_dot_product_attention(rotated(q), rotated(k), v)
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
