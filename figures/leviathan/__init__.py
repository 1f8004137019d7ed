"""Figures and tables of Leviathan, Kalman and Matias (ICML 2023)."""
