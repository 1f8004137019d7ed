"""How much of the core's code the tests hold: `python -m benchmarks.mutation`."""
