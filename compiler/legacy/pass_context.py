"""`tvm.transform.PassContext` with the configuration keys of TVM 0.18."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tvm.ir.transform import PassContext

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
    "relay.backend.use_auto_scheduler": (
        "whether a kernel is built from an auto_scheduler record follows from the context "
        "that the build stands in"
    ),
    "relay.backend.use_meta_schedule": "tuning records are applied by their contexts",
    "relay.backend.use_meta_schedule_dispatch": "tuning records are applied by their contexts",
}


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
        construct(self, opt_level, required_pass, disabled_pass, instruments, todays_config(config))

    patches.set(PassContext, "__init__", __init__)


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
            current[name] = value
        else:
            reason = _WITHOUT_EFFECT.get(key, "nothing of today's TVM reads it")
            logger.warning("PassContext: %s is ignored: %s", key, reason)
    return current


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
