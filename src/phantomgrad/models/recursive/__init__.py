"""Recursive reasoners: one small network, applied again and again to an answer and a latent.

The Tiny Recursive Model (TRM; Jolicoeur-Martineau, 2025, arXiv:2510.04871), with the damping,
noise and random starts of EqR (arXiv:2605.21488).
"""
