"""`tvm.topi.bifrost`."""

from . import names_of

__getattr__ = names_of("tvm.topi.bifrost", gpu=True)
