"""`tvm.transform.PassContext` with the configuration keys of TVM 0.18."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm.ir.transform import PassContext

from .. import pass_context
from ..precision import to_tvm_arguments
from ..relay import pass_config
from ..support.text_tables import names_in_state, read_table
from .patches import Patches

logger = logging.getLogger("baton.legacy")

_TABLE = read_table(__file__, "pass_config.txt")
_KEYS = names_in_state(_TABLE, "renamed")
_IGNORED = names_in_state(_TABLE, "ignored")
# Families of keys that back ends and boards added of their own.
_FAMILIES_OF_BACKENDS = ("relay.ext.", "relax.ext.", "tir.contrib.")

# What contexts of Relay's keys hold, by the handle of the context.
_settings: dict[int, dict[str, Any]] = {}
_entered = threading.local()
_handle = tvm_ffi.Object.__hash__


def patch(patches: Patches) -> None:
    """Let `PassContext(config=...)` take the old keys, and builds outside of one be at level 2."""
    patches.set(pass_context, "DEFAULT_OPT_LEVEL", 2)
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
        required_pass, disabled_pass, config = to_tvm_arguments(
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

    `config`: keys of TVM 0.18 or of today. A key of 0.18 that means nothing any more is left out,
    with a note; a key that no version has stays, so that TVM's error lists the valid ones.
    """
    if not config:
        return None
    known = set(PassContext.list_configs())
    current: dict[str, Any] = {}
    for key, value in config.items():
        name = _todays_key(key, known)
        if name is not None:
            if name == "tirx.add_lower_pass":  # pairs of a phase and a pass; today's takes objects
                value = [[tvm.tirx.IntImm("int32", int(phase)), each] for phase, each in value]
            current[name] = value
        else:
            reason = _IGNORED.get(key, "nothing of today's TVM reads it")
            logger.warning("PassContext: %s is ignored: %s", key, reason)
    return current


def _todays_key(key: str, known: set[str]) -> str | None:
    if key in known:
        return key
    family, _, rest = key.partition(".")
    candidates = [_KEYS.get(key, "")]
    if family == "tir":
        candidates += [f"tirx.{rest}", f"s_tir.{rest}"]
    for candidate in candidates:
        if candidate in known:
            return candidate
    is_ignored = key in _IGNORED or key.startswith(_FAMILIES_OF_BACKENDS)
    return None if is_ignored else key


def type_of(key: str) -> str | None:
    """The type of a key's value, "" where the key has no effect any more; None: no such key."""
    configs = PassContext.list_configs()
    name = _todays_key(key, set(configs))
    if name in configs:
        return str(configs[name]["type"])
    return "" if name is None or key in pass_config.KEYS else None
