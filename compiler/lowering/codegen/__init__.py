"""Code generation: from scheduled kernels and the functions that call them to one executable."""
