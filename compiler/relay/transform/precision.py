"""ToMixedPrecision: convolutions and products in a short type, what needs accuracy in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from ...errors import RelayError
from .. import dialect
from ..nest import handle, operands, post_order, with_operands
from .base import body_wise
from .build import again, dtype, is_op, op, tuple_of

ALWAYS, FOLLOW, NEVER = 0, 1, 2

_ALWAYS = (
    "nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose "
    "nn.dense nn.batch_matmul"
)
_NEVER = (
    "exp power nn.cross_entropy nn.cross_entropy_with_logits nn.softmax nn.l2_normalize erf "
    "arange nn.global_avg_pool2d nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d "
    "nn.adaptive_avg_pool3d sum mean variance nn.layer_norm"
)
_FOLLOW = (
    "nn.pad nn.batch_flatten concatenate zeros split squeeze transpose expand_dims reshape "
    "dyn.reshape broadcast_to_like dyn.broadcast_to strided_slice dyn.strided_slice take argwhere "
    "where tile dyn.tile scatter_elements scatter_nd full dyn.full nn.depth_to_space less greater "
    "less_equal greater_equal copy cast cast_like add subtract multiply divide nn.bias_add "
    "nn.batch_norm sqrt shape_of max min maximum minimum argmax argmin nn.relu nn.leaky_relu "
    "nn.prelu nn.dropout sigmoid tanh fast_tanh fast_exp fast_erf clip nn.max_pool1d nn.max_pool2d "
    "nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.global_max_pool2d "
    "nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d image.resize2d"
)
_CATEGORY = {
    **dict.fromkeys(_ALWAYS.split(), ALWAYS),
    **dict.fromkeys(_FOLLOW.split(), FOLLOW),
    **dict.fromkeys(_NEVER.split(), NEVER),
}
_CONVERSIONS: dict[str, Callable[[relax.Call, str], list[Any]]] = {}
_KEEPS_ITS_DTYPE = ("cast", "zeros", "full", "dyn.full", "argwhere", "shape_of", "argmax", "argmin")


def register_mixed_precision_conversion(
    op_name: str, func: Callable[[relax.Call, str], list[Any]] | None = None, level: int = 10
) -> Any:
    """Say how an operator is converted.

    Parameters
    ----------
    func : callable
        Gets the call and the short type; returns [category, accumulation type, output type].
        Without it, a decorator.
    """
    del level

    def register(function: Callable[[relax.Call, str], list[Any]]) -> Any:
        _CONVERSIONS[op_name] = function
        return function

    return register if func is None else register(func)


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Any:
    """Convert what gains from it to a short floating-point type.

    Parameters
    ----------
    mixed_precision_type : str
        "float16" or "bfloat16".
    missing_op_mode : int
        What to do about operators of no category: 0 raises, 1 warns and keeps them, 2 keeps them.

    The result has the types that it had.
    """
    if mixed_precision_type not in ("float16", "bfloat16"):
        raise RelayError(f"{mixed_precision_type} is no short floating-point type")
    return body_wise(
        "ToMixedPrecision",
        0,
        lambda body: _Conversion(mixed_precision_type, missing_op_mode).run(body),
    )


class _Conversion:
    def __init__(self, short: str, missing: int) -> None:
        self.short = short
        self.missing = missing
        self.made: dict[int, relax.Expr] = {}
        self.casts: dict[tuple[int, str], relax.Expr] = {}

    def run(self, body: relax.Expr) -> relax.Expr:
        for node in post_order(body):
            self.made[handle(node)] = self._converted(node)
        return self._restored(self.made[handle(body)], body.ty)

    def _restored(self, made: relax.Expr, ty: Any) -> relax.Expr:
        if isinstance(ty, relax.TupleType):
            fields = [
                made.fields[i] if isinstance(made, relax.Tuple) else _field(made, i)
                for i in range(len(ty.fields))
            ]
            return tuple_of([self._restored(each, t) for each, t in zip(fields, ty.fields)])
        return self._cast(made, str(ty.dtype)) if isinstance(ty, relax.TensorType) else made

    def _converted(self, node: relax.Expr) -> relax.Expr:
        below = [self.made[handle(each)] for each in operands(node)]
        if not dialect.is_relay(node):
            if isinstance(node, relax.Call):
                return with_operands(node, [self._wide(each) for each in below])
            return with_operands(node, below)
        category, accumulation, output = self._plan(node)
        if category == ALWAYS or (category == FOLLOW and self._all_short(below)):
            made = again(
                node, [self._narrow(each) for each in below], **self._types(node, accumulation)
            )
            return self._cast(made, output) if dtype(made) == accumulation != output else made
        return with_operands(node, [self._wide(each) for each in below])

    def _plan(self, node: relax.Call) -> tuple[int, str, str]:
        name = dialect.relay_name(node)
        hook = _CONVERSIONS.get(name)
        if hook is not None:
            category, *types = hook(node, self.short)
            return (int(category), *(str(each) for each in (types or [self.short] * 2)))  # type: ignore[return-value]
        if name not in _CATEGORY:
            if self.missing == 0:
                raise RelayError(f"ToMixedPrecision: {name} has no category")
            if self.missing == 1:
                import warnings

                warnings.warn(f"ToMixedPrecision keeps {name} as it is", stacklevel=2)
        return _CATEGORY.get(name, NEVER), self.short, self.short

    def _types(self, node: relax.Call, accumulation: str) -> dict[str, str]:
        attrs = dialect.attributes(node)
        if "out_dtype" in attrs and str(attrs["out_dtype"] or "float32") == "float32":
            return {"out_dtype": accumulation}
        if "dtype" in attrs and dialect.relay_name(node) not in _KEEPS_ITS_DTYPE:
            return {"dtype": self.short} if str(attrs["dtype"]) == "float32" else {}
        return {}

    def _all_short(self, exprs: list[relax.Expr]) -> bool:
        """Whether all real operands are short already; constants may become so."""
        found = False
        for each in exprs:
            fields = each.fields if isinstance(each, relax.Tuple) else [each]
            for field in fields:
                if dtype(field) == self.short:
                    found = True
                elif dtype(field) == "float32" and not isinstance(field, tvm.ir.GenericConst):
                    return False
        return found

    def _narrow(self, expr: relax.Expr) -> relax.Expr:
        return self._changed(expr, "float32", self.short)

    def _wide(self, expr: relax.Expr) -> relax.Expr:
        return self._changed(expr, self.short, "float32")

    def _changed(self, expr: relax.Expr, source: str, target: str) -> relax.Expr:
        if isinstance(expr.ty, relax.TupleType):
            fields = [
                expr.fields[i] if isinstance(expr, relax.Tuple) else _field(expr, i)
                for i in range(len(expr.ty.fields))
            ]
            return tuple_of([self._changed(each, source, target) for each in fields])
        return self._cast(expr, target) if dtype(expr) == source else expr

    def _cast(self, expr: relax.Expr, target: str) -> relax.Expr:
        if dtype(expr) == target:
            return expr
        if is_op(expr, "cast") and dtype(expr.args[0]) == target:
            return expr.args[0]
        key = (handle(expr), target)
        if key not in self.casts:
            self.casts[key] = op("cast", expr, dtype=target)
        return self.casts[key]


def _field(expr: relax.Expr, index: int) -> relax.Expr:
    from ..infer import typed

    return typed(relax.TupleGetItem(expr, index))
