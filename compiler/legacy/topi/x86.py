"""`tvm.topi.x86`."""

from . import names_of

__getattr__ = names_of("tvm.topi.x86", gpu=False)
