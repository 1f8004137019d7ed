"""Distributions of a server's tokens: from lists, a local model, or pairs of servers."""
