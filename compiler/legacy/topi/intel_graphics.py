"""`tvm.topi.intel_graphics`."""

from . import names_of

__getattr__ = names_of("tvm.topi.intel_graphics", gpu=True)
