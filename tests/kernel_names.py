"""Names of kernels, for tests that any CPU runs."""

from __future__ import annotations


def without_amx(implementation: str) -> str:
    """What CPUs without AMX have in the place of an implementation."""
    found = implementation.replace("conv2d_amx_", "conv2d_direct_")
    return found.replace("dense_amx_", "dense_packed_")
