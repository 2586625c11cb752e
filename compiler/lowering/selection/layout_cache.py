"""Values of one function in plain and in blocked layouts, converted on request.

A blocked layout NCHW[b]c of a tensor (N, C, H, W) is the tensor (N, ceil(C/b), H, W, b); block 1 is
the plain layout. If b does not divide C, the last block has padding channels. They hold finite
numbers, which readers multiply by zero or drop. A value is converted once per layout.

Signals and volumes are blocked as the images that they are made of: (N, C, W) as images one row
high, (N, C, D, H, W) as N * D images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from ...ir.constants import static_shape

PLAIN = 1


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """(N, C, H, W) of the images that a tensor is blocked as; None if it has no such form."""
    if len(shape) == 3:
        return shape[0], shape[1], 1, shape[2]
    if len(shape) == 5:
        return shape[0] * shape[2], shape[1], shape[3], shape[4]
    return (shape[0], shape[1], shape[2], shape[3]) if len(shape) == 4 else None


def image_axis(shape: tuple[int, ...], axis: int) -> int | None:
    """Axis of the images that corresponds to an axis of a tensor; None if there is none."""
    if image_shape(shape) is None:
        return None
    rank, axis = len(shape), axis % len(shape)
    if rank == 4 or axis == 1:
        return axis
    if rank == 3:
        return 3 if axis == 2 else 0
    if axis > 2:
        return axis - 1
    other = shape[0] if axis == 2 else shape[2]
    return 0 if other == 1 else None


class LayoutMap:
    """Layouts of each variable of the function being rewritten: old variables, new expressions."""

    def __init__(
        self, builder: relax.BlockBuilder, plain: Callable[[relax.Expr], relax.Expr]
    ) -> None:
        """`plain(old)` is the new expression of an old one that was never defined here."""
        self._builder = builder
        self._plain = plain
        self._forms: dict[relax.Var, dict[int, relax.Expr]] = {}
        self._images: dict[relax.Var, relax.Var] = {}

    def __contains__(self, old: relax.Expr) -> bool:
        return isinstance(old, relax.Var) and old in self._forms

    def define(self, old: relax.Var, block: int, new: relax.Expr) -> None:
        """`new` is the value of `old` in the layout with that channel block."""
        self._forms.setdefault(old, {})[block] = new

    def block(self, old: relax.Expr) -> int:
        """The widest block in which the value exists; PLAIN if none."""
        return max(self._forms[old]) if old in self else PLAIN

    def get(self, old: relax.Expr, block: int) -> relax.Expr:
        """The value in one layout, converted now if necessary."""
        if not isinstance(old, relax.Var):
            plain = self._plain(old)
            if block == PLAIN:
                return plain
            return self._builder.emit(self._builder.call_te(_block, plain, block))
        if old not in self:
            self._forms[old] = {PLAIN: self._plain(old)}
        forms = self._forms[old]
        if block not in forms:
            if block == PLAIN:
                shape = static_shape(old)
                assert shape is not None
                call = unblock(self._builder, forms[max(forms)], shape)
            else:
                call = self._builder.call_te(_block, self.get(old, PLAIN), block)
            forms[block] = self._builder.emit(call)
        return forms[block]

    def images(self, old: relax.Expr) -> relax.Expr:
        """A signal or volume as images (N, C, H, W). ValueError: no static rank of 3 to 5."""
        shape = static_shape(old)
        images = None if shape is None else image_shape(shape)
        if shape is None or images is None:
            raise ValueError(f"a value of shape {old.ty} is no image, signal or volume")
        if len(shape) == len(images):
            return old
        if isinstance(old, relax.Var) and old in self._images:
            return self._images[old]
        var = relax.Var("images", relax.TensorType(images, old.ty.dtype))
        blocked = {b: form for b, form in self._forms.get(old, {}).items() if b != PLAIN}
        self._forms[var] = blocked or {PLAIN: self._plain_images(old, shape, images)}
        if isinstance(old, relax.Var):
            self._images[old] = var
        return var

    def _plain_images(
        self, old: relax.Expr, shape: tuple[int, ...], images: tuple[int, ...]
    ) -> relax.Expr:
        plain = self.get(old, PLAIN)
        if len(shape) == 5 and 1 not in (shape[1], shape[2]):
            plain = self._builder.emit(relax.op.permute_dims(plain, [0, 2, 1, 3, 4]))
        return self._builder.emit(relax.op.reshape(plain, images))


def _block(data: te.Tensor, block: int) -> te.Tensor:
    shape = tuple(int(extent) for extent in data.shape)
    images = image_shape(shape)
    assert images is not None, f"a tensor of rank {len(shape)} has no blocked layout"
    n, channels, h, w = images
    whole = channels % block == 0

    def element(n: Any, chunk: Any, y: Any, x: Any, i: Any) -> Any:
        c = chunk * block + i
        at = {3: (n, c, x), 4: (n, c, y, x)}.get(len(shape))
        value = data(*(at or (n // shape[2], c, n % shape[2], y, x)))
        return value if whole else tirx.if_then_else(c < channels, value, tirx.const(0, data.dtype))

    return te.compute((n, -(-channels // block), h, w, block), element, name="layout_block")


def unblock(builder: relax.BlockBuilder, expr: relax.Expr, shape: tuple[int, ...]) -> relax.Call:
    """Images in blocks of channels as the plain tensor of that shape."""

    def gather(data: te.Tensor) -> te.Tensor:
        block = data.shape[4]

        def element(n: Any, c: Any, *at: Any) -> Any:
            if len(at) == 3:
                n, at = n * shape[2] + at[0], at[1:]
            y, x = at if len(at) == 2 else (0, at[0])
            return data[n, c // block, y, x, c % block]

        return te.compute(shape, element, name="layout_unblock")

    return builder.call_te(gather, expr, primfunc_name_hint="layout_unblock")
