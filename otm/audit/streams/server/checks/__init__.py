"""Checks beside the verdict: log-probabilities, greedy texts and seeds of a server."""
