"""`tvm.topi.generic`."""

from . import names_of

__getattr__ = names_of("tvm.topi.generic", gpu=None, parallel=False)
