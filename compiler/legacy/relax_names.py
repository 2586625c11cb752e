"""Old attribute names of Relay expressions and modules, added to their Relax equivalents."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from . import intrinsic_names
from .patches import Patches

_new_dtype = relax.TensorType.dtype
_new_from_expr = tvm.IRModule.from_expr
_new_init_module = tvm.IRModule.__init__
_new_get = tvm.ir.Op.get
_new_get_attr = tvm.ir.Op.get_attr
_new_register_op_attr = tvm.ir.register_op_attr
_new_make_node = tvm.ir.make_node
_new_load_json = tvm.ir.load_json


def patch(patches: Patches) -> None:
    """Add `checked_type`, `name_hint`, `data`, `astext` and their kin."""
    patches.add(tvm.ir.Expr, "checked_type", property(lambda self: _known_type(self)))
    patches.add(tvm.ir.Expr, "_checked_type_", property(lambda self: self.ty))
    for name in ("struct_info", "struct_info_"):  # Relax's own, up to TVM 0.20
        patches.add(tvm.ir.Expr, name, property(lambda self: self.ty))
    for kind in ("Tensor", "Tuple", "Shape", "Func"):
        patches.add(relax, f"{kind}StructInfo", getattr(relax, f"{kind}Type"))
    patches.add(relax, "ObjectStructInfo", relax.AnyType)
    patches.add(relax, "Constant", tvm.ir.GenericConst)
    for name in ("Call", "Constant"):
        patches.add(relax.expr, name, getattr(relax, name))
    patches.add(relax.Var, "name_hint", property(lambda self: str(self.name)))
    patches.add(relax.Var, "vid", property(lambda self: self))
    patches.add(relax.Var, "type_annotation", property(lambda self: self.ty))
    patches.add(tvm.ir.GenericConst, "data", property(lambda self: self.value))
    patches.add(tvm.ir.TupleGetItem, "tuple_value", property(lambda self: self.tuple))
    patches.add(relax.TensorType, "concrete_shape", property(_concrete_shape))
    patches.add(tvm.ir.Call, "type_args", property(lambda self: [each.ty for each in self.args]))
    patches.add(relax.Function, "ret_type", property(lambda self: self.ret_ty))
    patches.add(relax.FuncType, "arg_types", property(lambda self: self.params))
    patches.add(relax.FuncType, "ret_type", property(lambda self: self.ret))
    patches.add(relax.FuncType, "type_params", property(lambda self: []))
    for owner in (tvm.IRModule, tvm.ir.Expr):
        patches.add(owner, "astext", _astext)
    patches.set(tvm.runtime, "save_param_dict", _save_param_dict)
    for owner in (tvm.ir, tvm.ir.op):
        patches.set(owner, "register_op_attr", _register_op_attr)
    patches.set(tvm.ir, "load_json", _load_json)
    patches.set(tvm.ir, "make_node", _make_node)


def change(patches: Patches) -> None:
    """Have TVM's own classes behave as Relay's did."""
    patches.set(relax.TensorType, "dtype", property(_dtype))
    patches.set(relax.SeqExpr, "__getattr__", _of_value)
    patches.set(relax.ShapeExpr, "__getitem__", _extent)
    patches.set(tvm.IRModule, "from_expr", staticmethod(_from_expr))
    patches.set(tvm.IRModule, "__init__", _init_module)
    patches.set(tvm.ir.Op, "get", staticmethod(_operator))
    patches.set(tvm.ir.Op, "get_attr", _attribute)
    for kind in (relax.SeqExpr, relax.If, relax.Tuple, relax.TupleGetItem, tvm.ir.Call):
        patches.set(kind, "__str__", _str)
    for kind in (tvm.IRModule, relax.Function):
        patches.set(kind, "__str__", _str)


class DType(tvm_ffi.dtype):
    """A dtype that is text, as numpy and old scripts take it, and a type as TVM's code does."""

    @property
    def dtype(self) -> DType:
        """Itself."""
        return self

    def matches_code(self, *codes: Any) -> bool:
        """Whether it is of one of these kinds: of integers, of floating-point numbers..."""
        return tvm.ir.PrimType(str(self)).matches_code(*codes)

    def matches_element_type(self, code: Any, bits: int) -> bool:
        """Whether it is of this kind and width."""
        return tvm.ir.PrimType(str(self)).matches_element_type(code, bits)

    def is_scalar(self) -> bool:
        """Whether it has one lane."""
        return bool(self.lanes == 1)


def _dtype(self: Any) -> DType | None:
    found = _new_dtype.__get__(self)
    return None if found is None else DType(str(found))


def _of_value(self: Any, name: str) -> Any:
    """An attribute of what a sequence of bindings computes: `function.body.op`, `.args`...

    A sequence of one binding is Relay's let, with its `var` and its `value`.
    """
    from ..relay.expr import value_of

    if name in ("var", "value"):
        bindings = [each for block in self.blocks for each in block.bindings]
        if len(bindings) == 1:
            return getattr(bindings[0], name)
    value = None if name.startswith("_") else value_of(self)
    if value is None or isinstance(value, relax.SeqExpr):
        raise AttributeError(f"'SeqExpr' object has no attribute {name!r}")
    return getattr(value, name)


def _init_module(self: tvm.IRModule, functions: Any = None, *rest: Any, **kwargs: Any) -> None:
    """Functions of variables without types may be in a module, to be shown."""
    from ..relay.function import OpenFunction

    if functions is not None:
        functions = {
            gvar: each.untyped() if isinstance(each, OpenFunction) and not each.is_program else each
            for gvar, each in functions.items()
        }
    _new_init_module(self, functions, *rest, **kwargs)


def _from_expr(expr: Any, functions: Any = None, type_defs: Any = None) -> tvm.IRModule:
    """A module whose `main` is a function, or takes the free variables of an expression."""
    from ..relay.analysis import free_vars
    from ..relay.expr import as_expr
    from ..relay.function import Function, OpenFunction

    del type_defs
    expr = as_expr(expr)
    if isinstance(expr, OpenFunction) and not expr.is_program:
        expr = expr.of()
    if not isinstance(expr, tvm.ir.BaseFunc):
        expr = Function(free_vars(expr), expr)
    return _new_from_expr(expr, functions)


def _operator(op_name: str) -> tvm.ir.Op:
    """An operator by name, Relay's as well, and an intrinsic by its old one."""
    _register(op_name)
    return _new_get(intrinsic_names.today(op_name) if op_name.startswith("tir.") else op_name)


def _attribute(self: tvm.ir.Op, attr_name: str) -> Any:
    """An attribute of an operator; None if it has none of that name."""
    return _new_get_attr(self, attr_name) if self.has_attr(attr_name) else None


def _register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    _register(op_name)
    return _new_register_op_attr(op_name, attr_key, value, level)


def _register(op_name: str) -> None:
    """Make one of Relay's operators known to TVM before it is asked for, or given attributes."""
    from ..relay import dialect
    from ..relay.op.registry import is_available

    if is_available(op_name):
        dialect.operator(str(op_name))


def _known_type(expr: Any) -> Any:
    if expr.ty is None or expr.ty.is_missing():
        raise ValueError(
            "the type checker has not run on this expression: apply relay.transform.InferType()"
        )
    return expr.ty


def _extent(self: Any, index: Any) -> Any:
    """An extent, or several of them by a slice."""
    return list(self.values)[index]


def _concrete_shape(self: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in self.shape)


def _astext(self: Any, show_meta_data: bool = True, annotate: Any = None) -> str:
    from ..relay.text import astext

    functions = (
        [each for _, each in self.functions_items()] if isinstance(self, tvm.IRModule) else [self]
    )
    if functions and all(isinstance(each, tvm.tirx.PrimFunc) for each in functions):
        return str(self.script())
    return astext(self, show_meta_data=show_meta_data)


def _str(self: Any) -> str:
    """What `print` shows: Relay's text, without header, of what calls Relay's operators."""
    from ..errors import RelayError

    if _is_relays(self):
        with contextlib.suppress(RelayError):
            return _astext(self, show_meta_data=False).partition("\n")[2].rstrip("\n")
    return repr(self)


def _is_relays(node: Any) -> bool:
    """Whether a module, function or expression calls Relay's operators, or needs its language."""
    from ..relay import dialect
    from ..relay.function import OpenFunction
    from ..relay.variables import nodes

    if not dialect.in_use():
        return False
    functions = node.functions.values() if isinstance(node, tvm.IRModule) else [node]
    return any(
        isinstance(each, OpenFunction) or any(map(dialect.is_relay, nodes(each)))
        for each in functions
        if not isinstance(each, (tvm.tirx.PrimFunc, relax.ExternFunc))
    )


def _make_node(type_key: str, **kwargs: Any) -> Any:
    """A node by its type's name; attributes of Relay's operators are plain ones today."""
    if type_key == "DictAttrs" or type_key.startswith(("relay.attrs.", "attrs.")):
        type_key = "ir.DictAttrs"
    return _new_make_node(type_key, **kwargs)


def _save_param_dict(params: Any) -> bytearray:
    """Parameters in the format that TVM has always had."""
    from ..relay.saved import save_param_dict

    return save_param_dict(params)


def _load_json(json_str: str) -> Any:
    """Read what `tvm.ir.save_json` wrote, an old TVM's of a Relay module included."""
    try:
        graph = json.loads(json_str)
    except ValueError:
        graph = None
    if isinstance(graph, dict) and "b64ndarrays" in graph:
        from ..relay.saved import load_json

        return load_json(json_str)
    from ..relay.saved import register_operators

    register_operators(graph)
    return _new_load_json(json_str)
