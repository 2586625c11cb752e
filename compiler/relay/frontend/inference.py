"""`relay.frontend.common`: types, shapes and values of expressions, as importers ask for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm import relax

from compiler.errors import BatonError, RelayError
from compiler.relay.analysis import free_vars
from compiler.relay.executor import create_executor
from compiler.relay.expr import Tuple, TupleWrapper, as_expr, var
from compiler.relay.function import Function
from compiler.relay.op.transform import split, squeeze
from compiler.relay.transform.constants import FoldConstantExpr
from compiler.relay.type_infer import infer_type as inferred

new_var = var


def infer_type(node: Any, mod: tvm.IRModule | None = None) -> Any:
    """The expression with its type, which it has had since it was made."""
    del mod
    return inferred(as_expr(node))


def infer_shape(inputs: Any, mod: tvm.IRModule | None = None) -> Any:
    """Extents of a tensor as a tuple, symbolic ones as they are; of anything else its type."""
    ty = infer_type(inputs, mod).ty
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return ty
    return tuple(
        int(extent) if isinstance(extent, tvm.tirx.IntImm) else extent for extent in ty.shape
    )


def infer_channels(inputs: Any, transpose: bool = False) -> int:
    """How many channels a weight makes: its first extent, or its second for a transposed one."""
    return int(infer_shape(inputs)[1 if transpose else 0])


def fold_constant(node: Any, mod: tvm.IRModule | None = None) -> Any:
    """The expression with what constants decide computed."""
    return FoldConstantExpr(inferred(as_expr(node)), mod or tvm.IRModule())


def infer_value(input_val: Any, params: Mapping[str, Any], mod: tvm.IRModule | None = None) -> Any:
    """TVM tensor of an expression, given free variables' values; RelayError if one is missing."""
    value = inferred(as_expr(input_val))
    free = free_vars(value)
    missing = [str(each.name) for each in free if str(each.name) not in params]
    if missing:
        raise RelayError(f"infer_value: no value is given for {', '.join(missing)}")
    run = create_executor("graph", mod).evaluate(Function(free, value))
    return run(*[params[str(each.name)] for each in free])


def try_infer_value(
    val: Any,
    on_success: Callable[[Any], Any] | None = None,
    on_failure: Callable[[], Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> tuple[Any, bool]:
    """Numpy value and True; without a value, `on_failure()` or the expression, and False."""
    try:
        value = infer_value(val, parameters or {}).numpy()
    except BatonError:
        return (on_failure() if on_failure else val), False
    return (on_success(value) if on_success else value), True


def unbind(data: Any, axis: int = 0) -> TupleWrapper:
    """The slices along an axis, each without that axis."""
    extent = infer_shape(data)[axis]
    if extent == 1:
        return TupleWrapper(Tuple([squeeze(data, axis=[axis])]), 1)
    parts = split(data, extent, axis)
    return TupleWrapper(Tuple([squeeze(part, axis=[axis]) for part in parts]), extent)
