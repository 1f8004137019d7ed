"""Parts of `python -m benchmarks.profiles`."""
