"""Benchmarks: ratios measured in one run, never in a test."""
