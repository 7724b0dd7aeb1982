"""The DEQ-Transformer (Bai et al., 2019), a language model, as the paper trains it.

The files follow the figure: the embedding, the cell (attention with a memory, feed-forward block),
the softmax on the equilibrium, and the model.
"""

from phantomgrad.models.transformer.attention import Memory
from phantomgrad.models.transformer.cell import TransformerCell
from phantomgrad.models.transformer.language import TransformerLM

__all__ = ["Memory", "TransformerCell", "TransformerLM"]
