"""`tvm.topi.mali`."""

from . import names_of

__getattr__ = names_of("tvm.topi.mali", gpu=True)
