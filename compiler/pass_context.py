"""TVM's PassContext, with the keys of Baton."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm.ir import _ffi_transform_api

from .precision import to_tvm_arguments

_logger = logging.getLogger("baton.lowering")

DEFAULT_OPT_LEVEL = 3
"""Level of builds outside any PassContext. The TVM default is 2, which old names restore."""


_USE_AUTO_SCHEDULER = "relay.backend.use_auto_scheduler"


@contextmanager
def default_opt_level() -> Iterator[None]:
    """Enter a PassContext of `DEFAULT_OPT_LEVEL` where the caller has entered none."""
    if _is_entered():
        yield
        return
    with tvm.transform.PassContext(opt_level=DEFAULT_OPT_LEVEL):
        yield


def _is_entered() -> bool:
    """Whether the thread is within a PassContext; TVM tells only by failing to leave one."""
    current = tvm.transform.PassContext.current()
    parts = (current.required_pass, current.disabled_pass, current.instruments, current.config)
    if int(current.opt_level) != 2 or any(len(part or ()) for part in parts):
        return True
    try:
        _ffi_transform_api.ExitPassContext(current)
    except tvm.error.InternalError:
        return False
    _ffi_transform_api.EnterPassContext(current)
    return True


class PassContext(tvm.transform.PassContext):
    """`tvm.transform.PassContext`, whose `config` may also have `"baton.precision"`.

    Its `opt_level` is 3 by default, as that of a build outside of any context. The old key
    "relay.backend.use_auto_scheduler" is ignored with a warning.

    Raises
    ------
    BuildError
        The precision is not one of `compiler.precision.PRECISIONS`.
    """

    def __init__(
        self,
        opt_level: int = DEFAULT_OPT_LEVEL,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        if config and _USE_AUTO_SCHEDULER in config:
            _logger.warning(
                "%s is ignored: enter auto_scheduler.ApplyHistoryBest(log) around the build, and "
                "its kernels are built from the log's records", _USE_AUTO_SCHEDULER,
            )  # fmt: skip
            config = {key: value for key, value in config.items() if key != _USE_AUTO_SCHEDULER}
        required_pass, disabled_pass, config = to_tvm_arguments(
            required_pass, disabled_pass, config
        )
        super().__init__(opt_level, required_pass, disabled_pass, instruments, config)
