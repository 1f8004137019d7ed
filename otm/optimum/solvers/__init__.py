"""Solvers beside the closed form: linear programs, Sinkhorn's algorithm, maximum flow."""
