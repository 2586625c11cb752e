"""Partition a quantized network: input conversions, integer core, output conversions.

    main(x) = dequantize_outputs(quantized_main(quantize_inputs(x)))

Integer-only devices run `quantized_main`; the host runs the other functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax

from ...errors import NotIntegralError
from ...ir.constants import array_of
from ...ir.rewrite import operator_name
from .. import dialect
from ..nested_expressions import handle, make_call, nested, post_order, rewrite, with_operands
from ..relay_to_relax import function_of
from ..transform.build import constant, dtype, is_op, op, tuple_of
from ..type_infer import infer_type, set_type

PARTS = ("quantize_inputs", "quantized_main", "dequantize_outputs")
_KEEPING = ("nn.relu", "nn.max_pool2d", "reshape", "nn.batch_flatten", "transpose", "squeeze")
"""Operators that commute with scaling of integer sums."""


def partition_conversions(mod: tvm.IRModule, fully_integral: bool) -> tvm.IRModule:
    """Outline the conversions of a module, a result of `realize`, into separate functions.

    Raises NotIntegralError: with `fully_integral`, an operator between the conversions computes in
    floats; names it.
    """
    main = mod["main"]
    body = nested(main)
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    sums = [_integers(field) for field in fields]
    core = tuple_of([field if s is None else s[0] for field, s in zip(fields, sums, strict=True)])
    read = [each for each in post_order(core) if _is_input(each, main.params)]
    known = {handle(each) for each in read}
    inputs = {handle(each): relax.Var(f"q{i}", each.ty) for i, each in enumerate(read)}
    core = rewrite(core, lambda old, new: inputs[handle(old)] if handle(old) in known else new)
    if fully_integral:
        _require_integers(core)
    kept = [each for each in main.params if any(each.same_as(node) for node in post_order(core))]
    results = [relax.Var(f"r{i}", field.ty) for i, field in enumerate(core.fields)]
    outs = [r if s is None else _real(r, s[1]) for r, s in zip(results, sums, strict=True)]
    last = tuple_of(outs) if isinstance(body, relax.Tuple) else outs[0]
    functions = {
        PARTS[0]: _function(main.params, tuple_of([*read, *kept])),
        PARTS[1]: _function([*inputs.values(), *kept], core),
        PARTS[2]: _function(results, last),
    }
    names = {name: tvm.ir.GlobalVar(name) for name in PARTS}
    for name, function in functions.items():
        set_type(names[name], function.ty)
    value: list[relax.Expr] = list(main.params)
    for name in PARTS[:2]:
        ty = functions[name].ret_ty
        made = make_call(names[name], value, ty)
        value = [infer_type(relax.TupleGetItem(made, i)) for i in range(len(ty.fields))]
    whole = make_call(names[PARTS[2]], value, last.ty)
    entry = function_of(main.params, whole, main.attrs)
    return tvm.IRModule({"main": entry, **{names[name]: functions[name] for name in PARTS}})


def _function(parameters: Sequence[relax.Var], body: relax.Expr) -> relax.Function:
    """Create a function with new parameter variables."""
    own = {handle(each): relax.Var(each.name, each.ty) for each in parameters}
    return function_of(
        list(own.values()), rewrite(body, lambda old, new: own.get(handle(old), new))
    )


def _is_input(expr: relax.Expr, params: Sequence[relax.Var]) -> bool:
    return operator_name(expr) == "quantize" and any(expr.args[0].same_as(p) for p in params)


def _integers(expr: relax.Expr) -> tuple[relax.Expr, float] | None:
    """int32 form of an expression and its scale; None if there is none."""
    if is_op(expr, "nn.conv2d", "nn.dense"):
        data, weight = (_bytes(each) for each in expr.args)
        if data is None or weight is None:
            return None
        numbers = [
            *[constant(0, "int32")] * 2,
            *(constant(s, "float32") for _, s in (data, weight)),
        ]
        attrs = {**dialect.attributes(expr), "out_dtype": "int32"}
        made = op(f"qnn.{dialect.relay_name(expr)[3:]}", data[0], weight[0], *numbers, **attrs)
        return made, float(np.float32(data[1]) * np.float32(weight[1]))
    if is_op(expr, *_KEEPING):
        inner = _integers(expr.args[0])
        return None if inner is None else (with_operands(expr, [inner[0]]), inner[1])
    if is_op(expr, "add"):
        both = [_integers(each) for each in expr.args]
        if both[0] is None or both[1] is None or both[0][1] != both[1][1]:
            return None
        return op("add", both[0][0], both[1][0]), both[0][1]
    return None


def _bytes(expr: relax.Expr) -> tuple[relax.Expr, float] | None:
    """int8 operand and scale of a dequantize; int32 sums are requantized."""
    if operator_name(expr) != "dequantize":
        return None
    integers, known = expr.args[0], array_of(expr.args[1])
    if known is None or known.size != 1:
        return None
    scale = float(known.reshape(()))
    inner = _integers(integers.args[0]) if operator_name(integers) == "quantize" else None
    if inner is None:
        return integers, scale
    zero = constant(0, "int32")
    scales = [constant(each, "float32") for each in (inner[1], scale)]
    made = op("qnn.requantize", inner[0], scales[0], zero, scales[1], zero, out_dtype="int8")
    return made, scale


def _real(integers: relax.Expr, scale: float) -> relax.Expr:
    return op("multiply", op("cast", integers, dtype="float32"), constant(scale, "float32"))


def _require_integers(core: relax.Expr) -> None:
    for node in post_order(core):
        if isinstance(node, relax.Call) and "float" in dtype(node):
            name = dialect.relay_name(node) or operator_name(node)
            raise NotIntegralError(
                f'partition_conversions is "fully_integral", but {name} of '
                f"{', '.join(str(each.ty) for each in node.args)} computes floats between the "
                'conversions; "enabled" leaves it there'
            )
