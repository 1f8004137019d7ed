"""What `benchmarks.kernels` measures: inputs, contestants, the gate and the clocks."""
