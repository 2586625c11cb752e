"""`tvm.topi.cuda`, and the modules of the other GPUs, whose names are the same."""

from . import names_of

__getattr__ = names_of("tvm.topi.cuda", gpu=True)
