"""`tvm.topi.x86`, and its `utils`."""

from . import names_of
from .fallbacks import current_target
from .fallbacks import fallback_schedule as _fallback_schedule  # noqa: F401

__getattr__ = names_of("tvm.topi.x86", gpu=False)


def get_simd_32bit_lanes() -> int:
    """How many floats a vector of the current target's CPU holds; without one, of this CPU."""
    from schedules.x86.machine.cpu import Machine

    return Machine.from_target(current_target()).lanes("float32")


get_fp32_len = get_simd_32bit_lanes
