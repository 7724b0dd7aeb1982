"""The runs of every table: as text, as a live page, and on wandb."""
