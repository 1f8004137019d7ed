"""The figures: data and drawing apart, one file a figure, written by ``python -m figures``."""
