"""PassContext settings of Relay's passes: keys that TVM no longer knows.

`compiler.legacy` moves them from `PassContext(config=...)` to this module while the context is
active; passes query them here.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from typing import Any

KEYS = frozenset({"relay.ToMixedPrecision.keep_orig_output_dtype", "relay.FuseOps.link_params"})
"""Keys read by the passes of `relay.transform`."""

_SETTINGS: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "relay_pass_settings",
    default={},  # noqa: B039
)


def setting(key: str, default: Any) -> Any:
    """Value of a key in the active context."""
    return _SETTINGS.get().get(key, default)


def enter(settings: Mapping[str, Any]) -> contextvars.Token[Mapping[str, Any]]:
    """Activate settings; an inner context does not inherit those of an outer one."""
    return _SETTINGS.set(settings)


def leave(token: contextvars.Token[Mapping[str, Any]]) -> None:
    """Restore the previously active settings."""
    _SETTINGS.reset(token)
