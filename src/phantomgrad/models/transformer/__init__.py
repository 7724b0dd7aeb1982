"""The DEQ-Transformer (Bai et al., 2019), a language model, as the paper trains it."""
