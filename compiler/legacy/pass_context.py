"""`tvm.transform.PassContext` with the configuration keys of TVM 0.18."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm.ir.transform import PassContext

from ..precision import todays_arguments
from ..relay import pass_config
from .patches import Patches

logger = logging.getLogger("baton.legacy")

# Keys that mean something today under another name; None: known, without effect now.
_KEYS: dict[str, str | None] = {
    "relay.FuseOps.max_depth": "relax.FuseOps.max_depth",
    "relay.fallback_device_type": "relax.fallback_device_type",
    "tir.Simplify": "tirx.StmtSimplify",
    "tir.ptx_ldg32": "tirx.s_tir.ldg32",
}
_WITHOUT_EFFECT = {
    "relay.frontend.fill_span": "importers give expressions the spans that they know",
    "relay.backend.use_auto_scheduler": (
        "whether a kernel is built from an auto_scheduler record follows from the context "
        "that the build stands in"
    ),
    "relay.backend.use_meta_schedule": "tuning records are applied by their contexts",
    "relay.backend.use_meta_schedule_dispatch": "tuning records are applied by their contexts",
}

# What contexts of Relay's keys hold, by the handle of the context.
_settings: dict[int, dict[str, Any]] = {}
_entered = threading.local()
_handle = tvm_ffi.Object.__hash__


def patch(patches: Patches) -> None:
    """Let `PassContext(config=...)` take the old keys."""
    construct = PassContext.__init__

    def __init__(
        self: Any,
        opt_level: int = 2,
        required_pass: Any = None,
        disabled_pass: Any = None,
        instruments: Any = None,
        config: Mapping[str, Any] | None = None,
        trace: Any = None,
    ) -> None:
        if trace is not None:
            logger.warning("PassContext(trace=...) has no effect: passes are no longer traced")
        required_pass, disabled_pass, config = todays_arguments(
            required_pass, disabled_pass, config
        )
        own = {key: value for key, value in (config or {}).items() if key in pass_config.KEYS}
        rest = {key: value for key, value in (config or {}).items() if key not in own}
        construct(self, opt_level, required_pass, disabled_pass, instruments, todays_config(rest))
        _settings.pop(_handle(self), None)
        if own:
            _settings[_handle(self)] = own

    enter, leave = PassContext.__enter__, PassContext.__exit__

    def __enter__(self: Any) -> Any:
        _entered.tokens = getattr(_entered, "tokens", [])
        _entered.tokens.append(pass_config.enter(_settings.get(_handle(self), {})))
        return enter(self)

    def __exit__(self: Any, *error: Any) -> Any:
        pass_config.leave(_entered.tokens.pop())
        return leave(self, *error)

    patches.set(PassContext, "__init__", __init__)
    patches.set(PassContext, "__enter__", __enter__)
    patches.set(PassContext, "__exit__", __exit__)


def todays_config(config: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Configuration under today's keys.

    Parameters
    ----------
    config : mapping of str, optional
        Keys of TVM 0.18 or of today. A key of 0.18 that means nothing any more is left out,
        with a note; one that nobody ever knew stays, so that TVM names the ones it knows.
    """
    if not config:
        return None
    known = set(PassContext.list_configs())
    current: dict[str, Any] = {}
    for key, value in config.items():
        name = _todays_key(key, known)
        if name is not None:
            current[name] = _VALUES.get(name, _same)(value)
        else:
            reason = _WITHOUT_EFFECT.get(key, "nothing of today's TVM reads it")
            logger.warning("PassContext: %s is ignored: %s", key, reason)
    return current


def _same(value: Any) -> Any:
    return value


def _phases(passes: Any) -> list[list[Any]]:
    """Passes with the numbers of their phases, where today's TVM takes only objects."""
    return [[tvm.tirx.IntImm("int32", int(phase)), each] for phase, each in passes]


# Configuration of 0.18 that has another form today.
_VALUES: dict[str, Callable[[Any], Any]] = {"tirx.add_lower_pass": _phases}


def _todays_key(key: str, known: set[str]) -> str | None:
    if key in known:
        return key
    family, _, rest = key.partition(".")
    candidates = [_KEYS.get(key) or ""]
    if family == "tir":
        candidates += [f"tirx.{rest}", f"s_tir.{rest}"]
    for candidate in candidates:
        if candidate in known:
            return candidate
    if family in ("relay", "tir", "te", "ir", "cuda") or key in _WITHOUT_EFFECT:
        return None
    return key
