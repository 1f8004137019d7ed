"""Figures and tables of Wagner et al. (EMNLP 2024)."""
