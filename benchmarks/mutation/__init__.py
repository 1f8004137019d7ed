"""Mutation tests of the core: `python -m benchmarks.mutation`."""
