"""Mistakes that TVM passed over: errors, but warnings while old scripts run."""

from __future__ import annotations

import logging

from ..errors import BatonError

logger = logging.getLogger("baton.legacy")
_forgiving = False
"""`compiler.legacy` sets it while the old names are on."""


def refuse(error: BatonError, instead: str) -> None:
    """Raise an error; while old scripts run, log it and what is done instead, and go on."""
    if not _forgiving:
        raise error
    logger.warning("%s: %s", error, instead)
