"""`tvm.topi.x86`."""

from . import names_of
from .fallbacks import fallback_schedule as _fallback_schedule  # noqa: F401

__getattr__ = names_of("tvm.topi.x86", gpu=False)
