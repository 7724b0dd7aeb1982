"""The DEQ-Transformer (Bai et al., 2019), a language model, as the paper trains it."""

from phantomgrad.models.transformer.attention import Memory
from phantomgrad.models.transformer.cell import TransformerCell
from phantomgrad.models.transformer.language import TransformerLM

__all__ = ["Memory", "TransformerCell", "TransformerLM"]
