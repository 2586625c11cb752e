"""`tvm.make`: nodes by the names of their classes, as `tvm.tir` makes them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.ir import make_node as node

from .. import tir

__all__ = ["node", "range_by_min_extent"]

range_by_min_extent = tvm.ir.Range.from_min_extent


def __getattr__(name: str) -> Any:
    return getattr(tir, name)
