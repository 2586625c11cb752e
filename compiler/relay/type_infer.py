"""Type inference of nested expressions during construction.

Relay's operators return nested expressions, but TVM's normalizer would bind each of them in a
block. This module calls each operator's inference function on the nested call itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from ..errors import RelayTypeError, UntypedVariableError
from ..ir.scopes import set_type as set_type
from ..tvm_workarounds.block_builder import BlockBuilder
from .adt import EXPRESSIONS, Constructor, type_of_data
from .ty import fresh, mentions_data


def infer_type(expr: relax.Expr) -> relax.Expr:
    """Infer missing types in place and return `expr`; RelayTypeError if a part has none."""
    if not expr.ty.is_missing():
        return expr
    stack: list[tuple[relax.Expr, bool]] = [(expr, False)]
    while stack:
        node, operands_done = stack.pop()
        if not node.ty.is_missing():
            continue
        if operands_done:
            _infer(node)
            continue
        stack.append((node, True))
        stack.extend(
            (operand, False)
            for operand in _operands(node)
            if operand.ty.is_missing() and not isinstance(operand, relax.Var)
        )
    return expr


def infer_type_if_possible(expr: relax.Expr) -> relax.Expr:
    """Infer types unless a variable is untyped, as in patterns or before a signature follows."""
    try:
        return infer_type(expr)
    except UntypedVariableError:
        return expr


def type_of(expr: Any) -> str:
    """Format a type for messages: Tensor[(2, 3), float32], a tuple of types, or "no type"."""
    ty = expr.ty if isinstance(expr, relax.Expr) else expr
    if isinstance(ty, relax.TensorType):
        shape = ty.shape
        if isinstance(shape, relax.ShapeExpr):
            extents = ", ".join(_extent(value) for value in shape.values)
        else:
            extents = "unknown" if ty.ndim < 0 else ", ".join("?" * ty.ndim)
        return f"Tensor[({extents}), {ty.dtype}]"
    if isinstance(ty, relax.TupleType):
        return f"({', '.join(type_of(field) for field in ty.fields)})"
    return "no type" if ty is None or ty.is_missing() else str(ty)


def with_symbolic_extents(expr: relax.Expr) -> relax.Expr:
    """Match-cast `expr` to a shape with new symbolic dimensions for its unknown extents."""
    declared = expr.ty  # each access makes another Python object
    ty = _with_extents(declared)
    return expr if ty is declared else _cast(expr, ty)


def with_extents(expr: relax.Expr, extents: Sequence[Any]) -> relax.Expr:
    """Match-cast the tensor `expr` to these extents; a mismatch raises at run time."""
    return _cast(expr, relax.TensorType(list(extents), expr.ty.dtype))


def _cast(expr: relax.Expr, ty: Any) -> relax.Expr:
    variable = relax.Var("known", ty)
    return set_type(
        relax.SeqExpr([relax.BindingBlock([relax.MatchCast(variable, expr, ty)])], variable), ty
    )


def _with_extents(ty: Any) -> Any:
    """Add a symbolic dimension for each unknown extent; return the same type if there are none."""
    if isinstance(ty, relax.TupleType):
        given = list(ty.fields)
        fields = [_with_extents(field) for field in given]
        same = all(new is old for new, old in zip(fields, given))
        return ty if same else relax.TupleType(fields)
    if isinstance(ty, relax.TensorType) and ty.shape is None and ty.ndim >= 0:
        return relax.TensorType([fresh("known") for _ in range(ty.ndim)], ty.dtype)
    return ty


def _extent(value: Any) -> str:
    return str(int(value)) if isinstance(value, tvm.tirx.IntImm) else "?"


def is_untyped(ty: Any) -> bool:
    """Whether a type, or a field of a tuple type, is missing or unknown to Relay."""
    if isinstance(ty, relax.TupleType):
        return any(map(is_untyped, ty.fields))
    return ty.is_missing() or isinstance(ty, relax.AnyType) or mentions_data(ty)


INFERENCE: dict[str, Callable[[relax.Call], Any]] = {}
"""Type inference functions of operators defined in Python, by operator name.

TVM has the same functions, but calls through TVM would lose the classes of their errors.
"""


@functools.lru_cache(maxsize=1)
def _builder() -> BlockBuilder:
    return BlockBuilder()


@functools.cache
def _inference(op: str) -> Any:
    return tvm.ir.Op.get(op).get_attr("FInferType")


def _operands(node: relax.Expr) -> list[relax.Expr]:
    if isinstance(node, tvm.ir.Call):
        return [argument for argument in node.args if isinstance(argument, relax.Expr)]
    if isinstance(node, relax.Tuple):
        return list(node.fields)
    if isinstance(node, relax.TupleGetItem):
        return [node.tuple_value]
    if isinstance(node, relax.If):
        return [node.cond, node.true_branch, node.false_branch]
    if isinstance(node, relax.SeqExpr):
        return [*(each.value for block in node.blocks for each in block.bindings), node.body]
    return []


def _infer(node: relax.Expr) -> None:
    if isinstance(node, tvm.ir.Call) and isinstance(node.op, tvm.ir.GlobalVar):
        _give_types(node)
    set_type(node, type_of_parts(node))


def _give_types(call: relax.Call) -> None:
    """Give untyped variables the parameter types of the function that is called with them."""
    taken = call.op.ty.params if isinstance(call.op.ty, relax.FuncType) else None
    for ty, operand in zip(taken or (), call.args):
        if isinstance(operand, relax.Var) and operand.ty.is_missing():
            set_type(operand, ty)


def type_of_parts(node: relax.Expr) -> Any:
    """Infer a type from parts, ignoring the declared one; RelayTypeError if they do not fit."""
    if isinstance(node, (relax.Var, tvm.ir.GlobalVar, tvm.ir.Op, tvm.ir.BaseFunc, *EXPRESSIONS)):
        raise _untyped(node)
    if isinstance(node, relax.Tuple):
        for field in node.fields:
            if field.ty.is_missing():
                raise _untyped(field)
        return relax.TupleType([field.ty for field in node.fields])
    if isinstance(node, relax.TupleGetItem):
        return _field(node)
    if isinstance(node, relax.If):
        for branch in (node.true_branch, node.false_branch):
            if branch.ty.is_missing() or mentions_data(branch.ty):
                raise _untyped(branch)
        return relax.analysis.type_lca(node.true_branch.ty, node.false_branch.ty)
    if isinstance(node, relax.SeqExpr):
        return node.body.ty
    if isinstance(node, tvm.ir.Call):
        return _call_type(node)
    raise RelayTypeError(f"the type of a {type(node).__name__} is not known: {node}")


def _untyped(expr: relax.Expr) -> UntypedVariableError:
    if isinstance(expr, tvm.ir.GlobalVar):
        return UntypedVariableError(f"nothing tells the type of the function {expr.name_hint}")
    if not isinstance(expr, relax.Var):
        return UntypedVariableError(f"an expression has no type: a {type(expr).__name__}")
    return UntypedVariableError(
        f"variable {expr.name} has no type; give relay.var a shape or a type_annotation"
    )


def _field(node: relax.TupleGetItem) -> Any:
    whole = node.tuple_value.ty
    if whole.is_missing():
        raise _untyped(node.tuple_value)
    if not isinstance(whole, relax.TupleType):
        raise RelayTypeError(f"field {node.index} of a value that is not a tuple: {type_of(whole)}")
    if not 0 <= node.index < len(whole.fields):
        raise RelayTypeError(f"field {node.index} of a tuple of {len(whole.fields)} fields")
    return whole.fields[node.index]


def _call_type(node: relax.Call) -> Any:
    if isinstance(node.op, tvm.ir.Op) and (of_relay := INFERENCE.get(node.op.name)) is not None:
        return of_relay(node)
    if isinstance(node.op, Constructor):
        ty = type_of_data(node.op, list(node.args))
        if ty is None:
            raise _untyped(node)
        return ty
    for operand in (node.op, *node.args):
        is_operator = isinstance(operand, tvm.ir.Op)
        if not is_operator and (operand.ty.is_missing() or mentions_data(operand.ty)):
            raise _untyped(operand)
    if isinstance(node.op, tvm.ir.Op):
        infer = _inference(node.op.name)
        if infer is None:
            raise RelayTypeError(f"{node.op.name} is not an operator of Relax")
        return infer(node, _builder())
    if not isinstance(node.op.ty, relax.FuncType):
        raise RelayTypeError(f"the callee must be a function, not {type_of(node.op)}")
    return relax.analysis.derive_call_ret_type(node.op.ty, node, _builder())
