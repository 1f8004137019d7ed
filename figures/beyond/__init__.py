"""Figures that are not from a paper: results of the exact solver."""
