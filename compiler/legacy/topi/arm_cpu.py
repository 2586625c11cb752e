"""`tvm.topi.arm_cpu`."""

from . import names_of

__getattr__ = names_of("tvm.topi.arm_cpu", gpu=False)
