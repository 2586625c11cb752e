"""Settings of Relay's passes in a PassContext: keys that today's TVM does not know.

`compiler.legacy` takes them out of `PassContext(config=...)` and sets them here while the context
is entered; passes ask for them.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from typing import Any

KEYS = frozenset({"relay.ToMixedPrecision.keep_orig_output_dtype", "relay.FuseOps.link_params"})
"""The keys that a pass of `relay.transform` reads."""

_SETTINGS: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar(
    "relay_pass_settings",
    default={},  # noqa: B039
)


def setting(key: str, default: Any) -> Any:
    """The value of a key in the context that is active."""
    return _SETTINGS.get().get(key, default)


def enter(settings: Mapping[str, Any]) -> contextvars.Token[Mapping[str, Any]]:
    """Make settings the active ones; those of an outer context do not reach into an inner one."""
    return _SETTINGS.set(settings)


def leave(token: contextvars.Token[Mapping[str, Any]]) -> None:
    """Bring back the settings that were active before."""
    _SETTINGS.reset(token)
