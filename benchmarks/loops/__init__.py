"""The parts of `python -m benchmarks.decoding`."""
