"""Parts of `benchmarks.kernels`: inputs, contestants, check of distributions, and clocks."""
