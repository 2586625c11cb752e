"""`tvm.topi.hls`: schedules for FPGAs, whose loops stayed as they were declared."""

from . import names_of

__getattr__ = names_of("tvm.topi.hls", gpu=False, parallel=False)
