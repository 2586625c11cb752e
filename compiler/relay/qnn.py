"""`relay.qnn`: `relay.qnn.op` holds the operators on quantized tensors."""

from __future__ import annotations

from .op import qnn as op

__all__ = ["op"]
