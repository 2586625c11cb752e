"""`tvm.topi.rocm`."""

from . import names_of

__getattr__ = names_of("tvm.topi.rocm", gpu=True)
