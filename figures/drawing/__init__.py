"""Appearance of the figures; this package computes no numbers."""
