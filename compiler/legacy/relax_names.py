"""Old attribute names of Relay expressions and modules, added to their Relax equivalents."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
from collections.abc import Callable
from typing import Any

import tvm
import tvm.relax.op
import tvm.relax.script
import tvm.relax.script.builder.ir
import tvm.script.parser
import tvm_ffi
from tvm import relax
from tvm.runtime.script_printer import Scriptable

from ..relay import adt
from ..relay.prelude import import_from_std
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
    patches.add(relax.Var, "name_hint", property(lambda self: str(self.name)))
    patches.add(relax.Var, "vid", property(lambda self: self))
    patches.add(relax.Var, "type_annotation", property(lambda self: self.ty))
    patches.add(tvm.ir.GenericConst, "data", property(lambda self: self.value))
    patches.add(tvm.ir.TupleGetItem, "tuple_value", property(lambda self: self.tuple))
    patches.add(
        relax.TensorType, "concrete_shape", property(lambda self: tuple(map(int, self.shape)))
    )
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
    _patch_keywords(patches)


def change(patches: Patches) -> None:
    """Have TVM's own classes behave as Relay's did."""
    _change_keywords(patches)
    _change_modules(patches)
    patches.set(relax.TensorType, "dtype", property(_dtype))
    patches.set(relax.SeqExpr, "__getattr__", _of_value)
    patches.set(relax.ShapeExpr, "__getitem__", lambda self, index: list(self.values)[index])
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


_KEYWORDS = {
    **{"out_sinfo": "out_ty", "sinfo_args": "ty_args", "pipeline": "relax_pipeline"},
    "show_all_struct_info": "show_all_ty",
}


def _patch_keywords(patches: Patches) -> None:
    """Let the functions of Python and those of TVMScript take them."""
    for module in (
        *(tvm.relax, tvm.relax.op, tvm.relax.op.base),
        *(tvm.relax.script, tvm.relax.script.builder.ir),
        *(tvm.script.relax, tvm.script.parser.relax),
    ):
        for name, each in list(vars(module).items()):
            if inspect.isfunction(each) and set(_KEYWORDS.values()) & set(_keywords(each)):
                patches.set(module, name, _renamed(each))


def _change_keywords(patches: Patches) -> None:
    """Let the methods that write a module as text take them."""
    for name in ("script", "show"):
        patches.set(Scriptable, name, _renamed(getattr(Scriptable, name)))


def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    code = inspect.unwrap(function).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


@functools.cache
def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{_KEYWORDS.get(key, key): value for key, value in kwargs.items()})

    return renamed


_new_add = tvm.IRModule._add
_new_update_func = tvm.IRModule.update_func
_new_getitem = tvm.IRModule.__getitem__


def _add(self: tvm.IRModule, var: Any, val: Any, update: bool = True) -> Any:
    if isinstance(val, adt.TypeData):
        return adt.define(self, val)
    function = _with_types(val)
    _tell(var, function)
    return _new_add(self, var, function, update)


def _update_func(self: tvm.IRModule, var: Any, func: Any) -> Any:
    function = _with_types(func)
    _tell(var, function)
    return _new_update_func(self, var, function)


def _function_or_type(self: tvm.IRModule, var: Any) -> Any:
    """A function, or the data type that a type's variable names; TypeError for a number."""
    if isinstance(var, int):  # what unpacking asks for
        raise TypeError(
            "a module is one value, not a pair: since TVM 0.10 partition_for_tensorrt returns the "
            "module alone; write mod = ... instead of mod, config = ..."
        )
    is_type = isinstance(var, adt.GlobalTypeVar)
    return adt.definition(self, var) if is_type else _new_getitem(self, var)


def _with_types(function: Any) -> Any:
    """Make an expression a function of its free variables, for a module.

    One that takes the types of its arguments becomes one over anything, unless it is a program.
    """
    from ..relay.expr import as_expr
    from ..relay.function import Function, OpenFunction
    from ..relay.variables import free_vars

    function = as_expr(function)
    if not isinstance(function, tvm.ir.BaseFunc):
        function = Function(free_vars(function), function)
    if isinstance(function, OpenFunction) and not function.is_program:
        return function.untyped()
    return function


def _tell(var: Any, function: Any) -> None:
    from ..relay.type_infer import set_type

    named = isinstance(var, tvm.ir.GlobalVar) and isinstance(function, relax.Function)
    if named and var.ty.is_missing():
        set_type(var, function.ty)


def _change_modules(patches: Patches) -> None:
    """Let modules tell the types of functions to the variables that name them."""
    patches.set(tvm.IRModule, "_add", _add)
    patches.set(tvm.IRModule, "update_func", _update_func)
    patches.set(tvm.IRModule, "__getitem__", _function_or_type)
    patches.add(tvm.IRModule, "get_type", adt.get_type)
    patches.add(tvm.IRModule, "get_constructor", adt.constructor)
    patches.add(
        tvm.IRModule, "get_global_type_var", lambda self, name: adt.definition(self, name).header
    )
    patches.add(tvm.IRModule, "get_global_type_vars", lambda self: list(adt.type_definitions(self)))
    patches.add(tvm.IRModule, "type_definitions", property(adt.type_definitions))
    patches.add(tvm.IRModule, "import_from_std", import_from_std)
