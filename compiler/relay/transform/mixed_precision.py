"""ToMixedPrecision: convolutions and matmuls in low precision, sensitive operators in float32."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ...errors import RelayError
from ...ir.constants import tensor_types
from .. import dialect
from ..nested_expressions import handle, operands, post_order, with_operands
from ..op import registry
from ..op.op import register_mixed_precision_conversion
from ..op.op_def import ALWAYS, FOLLOW, NEVER
from ..pass_config import setting
from ..type_infer import infer_type
from .base import body_wise
from .build import again, dtype, is_op, op, tuple_of

# Categories returned by user-defined conversions.
MIXED_PRECISION_ALWAYS, MIXED_PRECISION_FOLLOW, MIXED_PRECISION_NEVER = ALWAYS, FOLLOW, NEVER

_ATTRIBUTE = "FTVMMixedPrecisionConversionType"
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38}


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Any:
    """Convert operators to a low-precision floating-point type where this is beneficial.

    Scripts set conversions of operators with `register_mixed_precision_conversion`: a function of
    the call and the type, which returns [category, accumulation dtype, output dtype]. Category 0
    is always converted, 1 only if all operands are converted, variables or constants, 2 never.
    An operator without a category follows its operands.

    Parameters
    ----------
    mixed_precision_type : str
        "float16", "bfloat16" or another floating-point type.
    missing_op_mode : int
        Handling of operators without a category: 0 raises, 1 warns, 2 is silent.

    Results have the dtype of the last operator, or their original dtypes with the PassContext
    setting `relay.ToMixedPrecision.keep_orig_output_dtype`.
    """
    if not _is_real(mixed_precision_type):
        raise RelayError(f"{mixed_precision_type} is not a floating-point type")
    if missing_op_mode not in (0, 1, 2):
        raise RelayError(f"missing_op_mode must be 0, 1 or 2, not {missing_op_mode}")
    return body_wise(
        "ToMixedPrecision",
        0,
        lambda body: _Conversion(mixed_precision_type, missing_op_mode).run(body),
    )


class _Conversion:
    def __init__(self, short: str, missing_op_mode: int) -> None:
        self.short = short
        self.missing_op_mode = missing_op_mode
        self.missing: Counter[str] = Counter()
        self.made: dict[int, relax.Expr] = {}
        # Keyed by operand handle and dtype; operands are kept so that handles remain unique.
        self.casts: dict[tuple[int, str], tuple[relax.Expr, relax.Expr]] = {}

    def run(self, body: relax.Expr) -> relax.Expr:
        for node in post_order(body):
            self.made[handle(node)] = self._converted(node)
        made = self.made[handle(body)]
        self._report()
        if setting("relay.ToMixedPrecision.keep_orig_output_dtype", False):
            made = self._restored(made, body.ty)
        return made

    def _report(self) -> None:
        if not self.missing or self.missing_op_mode == 2:
            return
        names = ", ".join(f"{name} ({count})" for name, count in sorted(self.missing.items()))
        text = f"ToMixedPrecision: these operators have no category: {names}"
        if self.missing_op_mode == 0:
            raise RelayError(f"{text}; register_mixed_precision_conversion gives them one")
        warnings.warn(text, stacklevel=2)

    def _restored(self, made: relax.Expr, ty: Any) -> relax.Expr:
        if isinstance(ty, relax.TupleType):
            fields = [_field(made, index) for index in range(len(ty.fields))]
            return tuple_of([self._restored(each, t) for each, t in zip(fields, ty.fields)])
        return self._cast(made, str(ty.dtype)) if isinstance(ty, relax.TensorType) else made

    def _converted(self, node: relax.Expr) -> relax.Expr:
        below = [self.made[handle(each)] for each in operands(node)]
        if isinstance(node, relax.Call) and isinstance(node.op, relax.Function):
            return with_operands(node, [self._changed(each, "float32") for each in below])
        if not dialect.is_relay(node):
            if not isinstance(node, relax.Tuple | relax.TupleGetItem):
                below = [self._restored(each, old.ty) for each, old in zip(below, operands(node))]
            return with_operands(node, below)
        category, accumulation, output = self._plan(node)
        if category == FOLLOW:
            category = ALWAYS if all(map(self._may_be_short, below)) else NEVER
        if category == NEVER or not self._holds(node):
            return with_operands(node, [self._changed(each, "float32") for each in below])
        args = [self._changed(each, self.short) for each in below]
        made: relax.Expr = again(node, args, **_types(node, accumulation))
        return self._changed(made, output) if accumulation != output else made

    def _plan(self, node: relax.Call) -> tuple[int, str, str]:
        """Category, accumulation dtype and output dtype of an operator."""
        hook = node.op.get_attr(_ATTRIBUTE) if node.op.has_attr(_ATTRIBUTE) else None
        if hook is not None:
            category, accumulation, output = hook(node, self.short)
            return int(category), str(accumulation), str(output)
        found = registry.lookup(dialect.relay_name(node))
        if found.precision is None:
            self.missing[found.name] += 1
            return FOLLOW, self.short, self.short
        return found.precision, self.short, self.short

    def _holds(self, node: relax.Call) -> bool:
        """Whether the low-precision type can represent the numeric attributes."""
        if not is_op(node, "clip"):
            return True
        bounds = (float(node.attrs["a_min"]), float(node.attrs["a_max"]))
        return bool(np.all(np.abs(bounds) <= _LARGEST.get(self.short, np.inf)))

    def _may_be_short(self, expr: relax.Expr) -> bool:
        if isinstance(expr, (relax.Var, tvm.ir.GenericConst)):
            return True
        names = [str(each.dtype) for each in tensor_types(expr.ty)]
        return all(not _is_real(each) or each == self.short for each in names)

    def _changed(self, expr: relax.Expr, target: str) -> relax.Expr:
        """Convert floating-point tensors, also in tuples, to the target dtype."""
        if isinstance(expr.ty, relax.TupleType):
            fields = [_field(expr, index) for index in range(len(expr.ty.fields))]
            made = [self._changed(each, target) for each in fields]
            same = all(new.same_as(old) for new, old in zip(made, fields))
            return expr if same else tuple_of(made)
        return self._cast(expr, target) if _is_real(dtype(expr)) else expr

    def _cast(self, expr: relax.Expr, target: str) -> relax.Expr:
        if dtype(expr) == target:
            return expr
        key = (handle(expr), target)
        if key not in self.casts:
            made = op("cast", expr, dtype=target)
            self.casts[key] = (expr, made)
            self.casts[handle(made), dtype(expr)] = (made, expr)
        return self.casts[key][1]


def _types(node: relax.Call, accumulation: str) -> dict[str, str]:
    """Change attributes that name the result dtype."""
    attrs = dialect.attributes(node)
    key = registry.lookup(dialect.relay_name(node)).dtype_attribute
    if key not in attrs or not _is_real(str(attrs[key] or "float32")):
        return {}
    return {key: accumulation}


def _is_real(name: str) -> bool:
    return name.startswith(("float", "bfloat"))


def _field(expr: relax.Expr, index: int) -> relax.Expr:
    if isinstance(expr, relax.Tuple):
        return expr.fields[index]
    return infer_type(relax.TupleGetItem(expr, index))


__all__ = ["ALWAYS", "FOLLOW", "NEVER", "ToMixedPrecision", "register_mixed_precision_conversion"]
