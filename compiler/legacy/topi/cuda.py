"""`tvm.topi.cuda`."""

from . import names_of

__getattr__ = names_of("tvm.topi.cuda", gpu=True)
