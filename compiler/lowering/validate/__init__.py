"""Compares replayed kernels with the unscheduled compute, in a process of its own."""
