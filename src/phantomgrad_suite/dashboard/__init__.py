"""Runs to look at: a page of this machine, live while they go on; runs and reports of wandb.

Local files are the truth. The page shows run folders and records as they are at that moment; what
is on wandb can be made from the records at any time.
"""
