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
