"""Validation of replayed kernels against the unscheduled compute, in a child process."""
