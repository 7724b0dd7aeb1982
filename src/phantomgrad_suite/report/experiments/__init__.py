"""Tables of training runs: the experiments in them, and how their cells are computed."""
