"""Passes over the TIR of scheduled kernels, and the pipeline that runs them."""
