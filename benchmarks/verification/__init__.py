"""The parts of `python -m benchmarks.profiles`."""
