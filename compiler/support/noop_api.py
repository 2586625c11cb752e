"""Functions that only accept: what they set is decided elsewhere today, and they say where."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("baton.legacy")


def set_cuda_target_arch(arch: Any) -> None:
    """The architecture is the target's: "cuda -arch=sm_80"."""
    logger.warning(
        "set_cuda_target_arch(%r) has no effect: give the target, cuda -arch=%s", arch, arch
    )


def install_request_hook(depth: int | None = None, hook_script: Any = None) -> None:
    """TVM's own continuous integration took downloads from elsewhere; scripts download."""
    del depth, hook_script


def register_schedule(op_name: str, schedule: Any = None, level: int = 10) -> Any:
    """Kernels are scheduled by the build's own rules; a decorator without `schedule`."""
    del level
    if schedule is None:
        return lambda function: function
    logger.info("the schedule of %s has no effect: the build's own rules schedule it", op_name)
    return schedule


def register_injective_schedule(op_name: str, level: int = 10) -> None:
    """As `register_schedule`, with one of TOPI's."""
    del op_name, level


def register_shape_func(
    op_name: str, data_dependent: Any, shape_func: Any = None, level: int = 10
) -> Any:
    """Extents of results are those of what is computed; a decorator without `shape_func`."""
    del op_name, data_dependent, level
    return shape_func if shape_func is not None else lambda function: function
