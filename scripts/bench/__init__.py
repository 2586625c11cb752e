"""Benchmarks: speed, memory, build time and rounding errors."""
