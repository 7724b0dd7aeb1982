"""MDEQ, the multiscale deep equilibrium model (Bai et al., 2020), as the paper trains it."""
