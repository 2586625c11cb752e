"""Computes of Relay's operators, whose modules load when the first is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compute(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """As `compiler.legacy.te.relay_computes.compute`."""
    from ..te import relay_computes

    return relay_computes.compute(operator, *args, **kwargs)
