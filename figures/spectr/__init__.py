"""Figures and tables of SpecTr (Sun et al., NeurIPS 2023)."""
