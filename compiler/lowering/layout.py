"""Values of one function in plain and in blocked layouts, converted when somebody asks.

A blocked layout NCHW[b]c of a tensor (N, C, H, W) is the tensor (N, ceil(C/b), H, W, b); block 1
stands for the plain layout. Where b does not divide C, the last block has channels that belong to
nobody: they hold finite numbers, and whoever reads them multiplies them by zero or drops them. A
value is converted at most once to each layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

PLAIN = 1


def static_shape(expr: relax.Expr) -> tuple[int, ...] | None:
    """Shape of a tensor expression; None where it is not known at build time."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    dims = [dim.value for dim in ty.shape.values if isinstance(dim, tirx.IntImm)]
    return tuple(int(dim) for dim in dims) if len(dims) == len(ty.shape.values) else None


class LayoutMap:
    """The layouts in which each variable of the function being rewritten exists.

    Keys are the function's old variables; the expressions kept for them are new.
    """

    def __init__(
        self, builder: relax.BlockBuilder, plain: Callable[[relax.Expr], relax.Expr]
    ) -> None:
        """`plain(old)` is the new expression of an old one that was never defined here."""
        self._builder = builder
        self._plain = plain
        self._forms: dict[relax.Var, dict[int, relax.Expr]] = {}

    def __contains__(self, old: relax.Expr) -> bool:
        return isinstance(old, relax.Var) and old in self._forms

    def define(self, old: relax.Var, block: int, new: relax.Expr) -> None:
        """`new` is the value of `old` in the layout with that channel block."""
        self._forms.setdefault(old, {})[block] = new

    def block(self, old: relax.Expr) -> int:
        """The widest block in which the value exists; PLAIN if none."""
        return max(self._forms[old]) if old in self else PLAIN

    def get(self, old: relax.Expr, block: int) -> relax.Expr:
        """The value in one layout, converted now if need be."""
        if not isinstance(old, relax.Var):
            return self._plain(old)
        if old not in self:
            self._forms[old] = {PLAIN: self._plain(old)}
        forms = self._forms[old]
        if block not in forms:
            if block == PLAIN:
                channels = int(old.ty.shape.values[1])
                call = unblock(self._builder, forms[max(forms)], channels)
            else:
                call = self._builder.call_te(_block, self.get(old, PLAIN), block)
            forms[block] = self._builder.emit(call)
        return forms[block]


def _block(data: te.Tensor, block: int) -> te.Tensor:
    n, channels, h, w = data.shape
    whole = int(channels) % block == 0

    def element(n: Any, chunk: Any, y: Any, x: Any, i: Any) -> Any:
        c = chunk * block + i
        if whole:
            return data[n, c, y, x]
        return tirx.if_then_else(c < channels, data[n, c, y, x], tirx.const(0, data.dtype))

    chunks = -(-int(channels) // block)
    return te.compute((n, chunks, h, w, block), element, name="layout_block")


def unblock(builder: relax.BlockBuilder, expr: relax.Expr, channels: int) -> relax.Call:
    """(N, C/b, H, W, b) -> (N, channels, H, W)."""

    def gather(data: te.Tensor) -> te.Tensor:
        n, _, h, w, block = data.shape
        return te.compute(
            (n, channels, h, w),
            lambda n, c, y, x: data[n, c // block, y, x, c % block],
            name="layout_unblock",
        )

    return builder.call_te(gather, expr, primfunc_name_hint="layout_unblock")
