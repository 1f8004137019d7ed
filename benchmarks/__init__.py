"""Benchmarks: ratios of times measured together, never in a test."""
