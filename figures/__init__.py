"""Figures with separate code for data and drawing, one file each, made by ``python -m figures``."""
