"""Figures that no paper has: what the exact solver shows."""
