"""`tvm.tir`: what `tvm.tirx`, `tvm.s_tir` and `tvm.sym` hold together today."""

from __future__ import annotations

import importlib
import itertools
import operator
import typing

import tvm
from tvm import s_tir, sym, tirx

from . import intrinsic_names
from .ir_builder import BufferVar
from .lookup import first_of
from .patches import Patches

# Submodules are found below tvm.tirx, as `tvm.tir.expr`.
__path__ = tirx.__path__

_RENAMED = {
    "BijectiveLayout": "SBijectiveLayout",
    "Block": "SBlock",
    "BlockRealize": "SBlockRealize",
    "BlockScope": "SBlockScope",
    "Layout": "SLayout",
    "SizeVar": "Var",
    "bijective_layout": "sbijective_layout",
    "layout": "slayout",
}
_new_prim_func = tirx.PrimFunc.__init__
_new_var = tirx.Var.__init__
_of_today = first_of("tvm.tir", tirx, s_tir, sym, tvm.ir, renamed=_RENAMED)
_MODULES = (
    *("analysis", "buffer", "expr", "function", "generic", "ir_builder", "op", "schedule", "stmt"),
    *("stmt_functor", "tensor_intrin", "transform"),
)

# Rules for intrinsics of one level must not meet; later ones that override get higher levels.
_levels = itertools.count(100)


class _Loops(type):
    """Loops are made with or without the number of a device's interface, as TVM 0.7 had it."""

    def __call__(
        cls,
        loop_var: typing.Any,
        min: typing.Any,
        extent: typing.Any,
        kind: typing.Any,
        *rest: typing.Any,
        **kw: typing.Any,
    ) -> typing.Any:
        body = rest[1:] if rest and isinstance(rest[0], int) else rest
        return tirx.For(loop_var, min, extent, tirx.ForKind(kind), *body, **kw)

    def __instancecheck__(cls, instance: typing.Any) -> bool:
        return isinstance(instance, tirx.For)


class For(metaclass=_Loops):
    """A loop."""

    Serial, Parallel, Vectorized, Unrolled = list(tirx.ForKind)[:4]


class _OldNode(type):
    """A node class of older TVMs; today a function constructs nodes of a shared class."""

    def __new__(cls, name: str, construct: typing.Any, is_node: typing.Any) -> typing.Any:
        made: typing.Any = super().__new__(cls, name, (), {"__doc__": construct.__doc__})
        made.construct, made.is_node = construct, is_node
        return made

    def __call__(cls, *args: typing.Any, **options: typing.Any) -> typing.Any:
        return cls.construct(*args, **options)  # type: ignore[attr-defined]

    def __instancecheck__(cls, instance: typing.Any) -> bool:
        return bool(cls.is_node(instance))  # type: ignore[attr-defined]


def _is_load_of_producer(node: typing.Any) -> bool:
    return isinstance(node, tvm.ir.Call) and str(getattr(node.op, "name", "")) == "te.tensor_load"


BufferLoad = _OldNode(
    "BufferLoad", tirx.BufferLoad, lambda node: isinstance(node, tvm.ir.TensorLoad)
)
BufferRegion = _OldNode(
    "BufferRegion", tirx.BufferRegion, lambda node: isinstance(node, tvm.ir.TensorRegion)
)
Buffer = _OldNode(
    "Buffer", tirx.decl_buffer, lambda node: isinstance(getattr(node, "ty", None), tirx.BufferType)
)
ProducerLoad = _OldNode(
    "ProducerLoad", lambda producer, indices: producer(*indices), _is_load_of_producer
)


def _of_producer_load(name: str, position: int | slice) -> property:
    """An attribute of `ProducerLoad`; other calls do not have it."""

    def read(call: typing.Any) -> typing.Any:
        if not _is_load_of_producer(call):
            raise AttributeError(f"'Call' object has no attribute {name!r}")
        return call.args[position]

    return property(read)


class _OfScalars(type):
    def __instancecheck__(cls, instance: typing.Any) -> bool:
        return tvm.ir.is_prim_expr(instance)


class PrimExpr(metaclass=_OfScalars):
    """What scalar expressions were instances of."""


def add(lhs: typing.Any, rhs: typing.Any, span: typing.Any = None) -> typing.Any:
    """A sum of scalars or tensors."""
    return operator.add(lhs, rhs)


def multiply(lhs: typing.Any, rhs: typing.Any, span: typing.Any = None) -> typing.Any:
    """A product of scalars or tensors."""
    return operator.mul(lhs, rhs)


def subtract(lhs: typing.Any, rhs: typing.Any, span: typing.Any = None) -> typing.Any:
    """A difference of scalars or tensors."""
    return operator.sub(lhs, rhs)


def __getattr__(name: str) -> typing.Any:
    if name in _MODULES:
        return importlib.import_module(f"tvm.tir.{name}")
    if name == "Any":  # an extent; today's module has typing's
        from ..relay.ty import Any as extent

        return extent
    return _of_today(name)


def call_intrin(dtype: typing.Any, func_name: typing.Any, *args: typing.Any) -> typing.Any:
    """A call of an intrinsic by its name, also by that of 0.18 ("tir.tvm_mma_sync")."""
    return tirx.call_intrin(dtype, intrinsic_names.today(func_name), *args)


def call_pure_intrin(dtype: typing.Any, func_name: typing.Any, *args: typing.Any) -> typing.Any:
    """A call of an intrinsic by its name alone, which TVM 0.7 and older took ("exp")."""
    return tirx.call_intrin(dtype, intrinsic_names.today(func_name), *args)


def register_intrin_lowering(
    op_name: str, target: str, *, f: typing.Any = None, level: int = 10, override: bool = False
) -> typing.Any:
    """Say what a call of an intrinsic becomes in code for a target; a decorator without `f`.

    An intrinsic that nobody knows yet becomes one, without effects.
    """
    name = intrinsic_names.today(op_name)
    if name not in tvm.ir.Op.list_op_names():
        tvm.ir.register_op_attr(name, "TCallEffectKind", tirx.CallEffectKind.Pure)
    level = next(_levels) if override else level
    return tirx.register_intrin_lowering(name, target, f=f, level=level)


def register_intrin_rule(
    target: str, intrin: str, f: typing.Any = None, override: bool = False
) -> typing.Any:
    """`register_intrin_lowering` as TVM 0.7 and older spelled it."""
    return register_intrin_lowering(intrin, target, f=f, override=override)


def _of_expr(name: str) -> typing.Any:
    if name != "Any":
        raise AttributeError(f"module 'tvm.tirx.expr' has no attribute {name!r}")
    return __getattr__(name)


def _make_prim_func(
    self: typing.Any, params: typing.Any, *rest: typing.Any, **options: typing.Any
) -> None:
    """A function, among whose parameters may be pointers of `ir_builder`: their buffers."""
    buffers = [each.buffer if isinstance(each, BufferVar) else each for each in params]
    _new_prim_func(self, buffers, *rest, **options)


def _make_var(
    self: typing.Any, *args: typing.Any, dtype: typing.Any = None, **options: typing.Any
) -> None:
    """A variable, whose type was its `dtype`."""
    if dtype is not None:
        options["ty"] = dtype
    _new_var(self, *args, **options)


def _buffer_map(func: typing.Any) -> dict[typing.Any, typing.Any]:
    """The buffers of a function's parameters, which are the parameters themselves today."""
    return {each: each for each in func.params if isinstance(each, Buffer)}


def change(patches: Patches) -> None:
    """Functions of parameters that `ir_builder` made, and variables."""
    patches.set(tirx.PrimFunc, "__init__", _make_prim_func)
    patches.set(tirx.Var, "__init__", _make_var)


def patch(patches: Patches) -> None:
    """Names of expressions' arithmetic that moved to the top level.

    An extent is int64, as the extents of Relax's shapes are.
    """
    patches.set(tirx.expr, "__getattr__", _of_expr)
    patches.set(tirx.expr, "BufferLoad", BufferLoad)
    patches.set(tirx.stmt, "BufferRegion", BufferRegion)
    for node in (tvm.ir.TensorLoad, tvm.ir.TensorRegion):
        patches.add(node, "buffer", property(lambda self: self.source))
    patches.add(tvm.ir.Call, "producer", _of_producer_load("producer", 0))
    patches.add(tvm.ir.Call, "indices", _of_producer_load("indices", slice(1, None)))
    patches.add(tirx.PrimFunc, "buffer_map", property(_buffer_map))
    for owner in (tvm.ir, tvm.tirx):
        patches.add(owner, "PrimExpr", PrimExpr)
    patches.add(tvm.te, "size_var", lambda name, dtype="int32": tirx.Var(name, dtype))
