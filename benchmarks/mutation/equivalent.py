"""Mutants that change nothing that a caller can see, each with the reason."""

__all__ = ["EQUIVALENT"]

EQUIVALENT: dict[str, str] = {}
