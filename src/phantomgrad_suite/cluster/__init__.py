"""The runs of a table as commands of their own: listed, several at once, or as SLURM jobs."""
