"""TE computes as Relax operators, for operators that Relax lacks.

The operator is an ordinary call: its PrimFunc is only added to the module in legalization, so
expressions can be built without a module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax, te
from tvm.ir import _ffi_api

from ...ir.constants import static_key, tensor_types
from ...ir.op_facts import OTHER, declare
from ...support.source_fingerprint import MODULES, module_of
from .. import dialect
from ..ty import fresh
from ..type_infer import infer_type

Compute = Callable[..., Any]


def kernel(
    name: str, compute: Compute, kind: str = OTHER, **facts: Any
) -> Callable[..., relax.Expr]:
    """Create the operator "relay.<name>" from a TE compute.

    `compute`: takes a TE tensor for each operand (a list for a tuple, a list of extents for a
    shape) and the attributes as keywords; returns a TE tensor or a list of them. `kind`, `facts`:
    operator properties for passes: `compiler.ir.op_facts.declare`.

    Returns a function with the same arguments that creates the typed call. Attributes are numbers,
    strings, booleans, None and lists of these.
    """
    full_name = f"relay.{name}"
    _ffi_api.RegisterOp(full_name, compute.__doc__ or name)
    op = computed_by(full_name, compute)
    declare(full_name, kind, **facts)

    def make(*operands: Any, **attrs: Any) -> relax.Expr:
        call = relax.Call(op, list(operands), tvm.ir.make_node("ir.DictAttrs", **attrs))
        return infer_type(call)

    return make


def computed_by(name: str, compute: Compute) -> tvm.ir.Op:
    """Set type inference, legalization and TE compute of an operator in TVM's registry."""
    op = _ffi_api.GetOp(name)
    attributes = _attributes_of(name, compute)
    op.set_attr("FInferType", attributes.infer)
    op.set_attr("FLegalize", attributes.legalize)
    op.set_attr("FPurity", True)
    MODULES[name] = module_of(compute)
    return op


class _attributes_of:
    """Create the functions that TVM calls for an operator with a TE compute."""

    def __init__(self, name: str, compute: Compute):
        self.name = name
        self.compute = compute
        self._static = functools.lru_cache(maxsize=256)(self._infer_static)

    def infer(self, call: relax.Call, _builder: Any) -> Any:
        types = [argument.ty for argument in call.args]
        keys = [static_key(ty) for ty in types]
        if None not in keys:
            return self._static(tuple(keys), call.attrs)
        unknown = any(each.shape is None for ty in types for each in tensor_types(ty))
        operands = [_placeholder(argument) for argument in call.args]
        return _type(self._run(operands, call.attrs), ranks_only=unknown)

    def legalize(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        operands = [_fields(builder, argument) for argument in call.args]
        attrs = dialect.attribute_values(call.attrs)
        hint = self.name.removeprefix("relay.").replace(".", "_")
        return builder.call_te(
            lambda *tensors: self.compute(*tensors, **attrs), *operands, primfunc_name_hint=hint
        )

    def _infer_static(self, keys: tuple[Any, ...], attrs: Any) -> Any:
        return _type(self._run([_from_key(key) for key in keys], attrs), ranks_only=False)

    def _run(self, operands: list[Any], attrs: Any) -> Any:
        return self.compute(*operands, **dialect.attribute_values(attrs))


def _from_key(key: Any) -> Any:
    if key[0] == "tuple":
        return [_from_key(field) for field in key[1]]
    shape, dtype = key
    return te.placeholder([tvm.tirx.IntImm("int64", extent) for extent in shape], dtype)


def _placeholder(argument: Any) -> Any:
    if isinstance(argument, relax.ShapeExpr):
        return list(argument.values)
    return _tensor(argument.ty)


def _tensor(ty: Any) -> Any:
    if isinstance(ty, relax.TupleType):
        return [_tensor(field) for field in ty.fields]
    if ty.ndim < 0:
        raise ValueError("an operand has no known rank")
    shape = ty.shape.values if ty.shape is not None else [fresh() for _ in range(ty.ndim)]
    return te.placeholder(list(shape), str(ty.dtype))


def _type(result: Any, ranks_only: bool) -> Any:
    if isinstance(result, (list, tuple, tvm.ir.Array)):
        return relax.TupleType([_type(part, ranks_only) for part in result])
    if ranks_only:
        return relax.TensorType(dtype=result.dtype, ndim=len(result.shape))
    return relax.TensorType([_int64(value) for value in result.shape], result.dtype)


def _int64(value: Any) -> Any:
    if isinstance(value, (int, tvm.tirx.IntImm)):
        return int(value)
    return value if str(value.ty) == "int64" else value.astype("int64")


def _fields(builder: relax.BlockBuilder, argument: Any) -> Any:
    if isinstance(argument, relax.Tuple):
        return list(argument.fields)
    if isinstance(argument.ty, relax.TupleType):
        count = len(argument.ty.fields)
        return [builder.emit(relax.TupleGetItem(argument, index)) for index in range(count)]
    return argument
