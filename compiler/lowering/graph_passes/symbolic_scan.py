"""Scan along axes of dynamic extent, which may be 0.

TVM's scan writes each lane's first element before its loop: here only if the extent is not 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...ir.constants import static_shape
from ...ir.rewrite import CallRule, rewrite_calls

_SCANS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {
    "cumsum": (operator.add, 0),
    "cumprod": (operator.mul, 1),
}
"""Operation of each scan, and its value for no elements."""


def scan_symbolic(mod: tvm.IRModule, name: str) -> tvm.IRModule:
    return rewrite_calls(mod, _Scans, [name])


class _Scans(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name not in _SCANS or call.attrs.axis is None or static_shape(call) is not None:
            return None
        combine, identity = _SCANS[name]
        axis, exclusive = int(call.attrs.axis) % call.ty.ndim, bool(call.attrs.exclusive)

        def scan(data: te.Tensor) -> te.Tensor:
            return _scan(data, axis, str(call.ty.dtype), exclusive, combine, identity)

        made = self.scope.builder.call_te(scan, call.args[0], primfunc_name_hint=name)
        return made if isinstance(made, relax.Expr) else None


def _scan(
    data: te.Tensor,
    axis: int,
    dtype: str,
    exclusive: bool,
    combine: Callable[[Any, Any], Any],
    identity: int,
) -> te.Tensor:
    shape = list(data.shape)
    length, inner = shape[axis], math.prod(shape[axis + 1 :])
    lanes = math.prod(shape[:axis]) * inner

    def body(source: Any, result: Any) -> Any:
        with IRBuilder() as builder:
            source, result = T.buffer_proxy(source), T.buffer_proxy(result)
            with T.parallel(0, lanes) as lane:
                first = lane // inner * length * inner + lane % inner
                with T.If(length > 0), T.Then():
                    start = tirx.const(identity, dtype)
                    result[first] = start if exclusive else source[first].astype(dtype)
                with T.serial(0, length - 1) as step:
                    before = first + step * inner
                    at = before + inner
                    read = source[before if exclusive else at].astype(dtype)
                    result[at] = combine(result[before], read)
            return builder.get()

    return te.extern(
        [shape],
        [data],
        lambda ins, outs: body(ins[0], outs[0]),
        dtype=dtype,
        out_buffers=[tirx.decl_buffer(shape, dtype, "scanned")],
        name="scan",
        tag="scan",
    )
