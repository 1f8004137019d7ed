"""Leviathan, Kalman and Matias (ICML 2023): their figures and tables."""
