"""Parts of `python -m benchmarks.decoding` and `python -m benchmarks.papers`."""
