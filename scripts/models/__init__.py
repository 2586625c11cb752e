"""Generators of models for benchmarks and checks."""
