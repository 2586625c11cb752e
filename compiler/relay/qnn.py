"""`relay.qnn`: quantized operators, also available as `relay.qnn.op`, and their passes."""

from __future__ import annotations

from typing import Any

from .op import qnn as op

__all__ = ["op"]


def __getattr__(name: str) -> Any:
    if name == "transform":
        from .transform import qnn

        return qnn
    return getattr(op, name)
