"""`tvm.topi.adreno`."""

from . import names_of

__getattr__ = names_of("tvm.topi.adreno", gpu=True)
