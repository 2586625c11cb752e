"""`tvm.ir.structural_equal` and related functions, as they compared nested Relay expressions.

Names of variables, the order of bindings that do not depend on each other, and dataflow blocks say
nothing about what an expression computes; two expressions are compared in a form without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import relax

from ..errors import UntypedVariableError
from ..relay.type_infer import set_type
from ..runtime.metadata import OUTPUT_NAMES
from .patches import Patches

if TYPE_CHECKING:
    from ..relay.function import OpenFunction

_OF_INTERFACES = ("num_input", OUTPUT_NAMES)
"""Attributes that importers give functions: they name inputs and outputs."""

_assert_equal = tvm.ir.assert_structural_equal


def comparable(node: Any) -> Any:
    """A module, function or expression in the form in which equal ones are equal objects."""
    from ..relay.expr import value_of
    from ..relay.relay_to_relax import function_of

    if isinstance(node, tvm.IRModule):
        functions = {
            gvar: _any_function(each, str(gvar.name_hint)) for gvar, each in node.functions_items()
        }
        return tvm.IRModule(functions, attrs=node.attrs, global_infos=node.global_infos)
    if isinstance(node, tvm.tirx.PrimFunc):  # TVMScript and TE of 0.8 set neither
        return node.without_attr("global_symbol").without_attr("tirx.noalias")
    if isinstance(node, tvm.ir.BaseFunc):
        return _any_function(node, "main")
    if isinstance(node, relax.SeqExpr):
        node = value_of(node)
    composite = (relax.Call, relax.Tuple, relax.TupleGetItem, relax.If, relax.SeqExpr)
    if isinstance(node, composite):
        try:
            return function_of([], _plain(node))
        except UntypedVariableError:
            return _plain(node)
    return node


def _any_function(function: Any, name: str) -> Any:
    from ..relay.function import OpenFunction

    if isinstance(function, relax.Function):
        return _function(function, name)
    return _open_function(function) if isinstance(function, OpenFunction) else function


def _open_function(function: OpenFunction) -> OpenFunction:
    """A function that may leave out the type of its result, where its body has that type."""
    from ..relay.function import OpenFunction, type_of_branches

    body, said = function.body, function.ret_type
    found = None if said is None else type_of_branches(body)
    if found is None or not tvm_ffi.structural_equal(said, found):
        return function
    return OpenFunction(function.params, body, function.attrs, None, function.type_params)


def _function(function: relax.Function, name: str) -> relax.Function:
    from ..relay.nested_expressions import nested
    from ..relay.relay_to_relax import function_of

    attrs = dict((function.attrs or {}).items())
    for key in _OF_INTERFACES:
        attrs.pop(key, None)
    if attrs.get("global_symbol") == name:  # Relay's functions did not hold their own name
        del attrs["global_symbol"]
    return function_of(function.params, _plain(nested(function)), attrs or None)


_DIGITS = 9  # numbers that differ by less than 1e-9 were equal


def _plain(body: relax.Expr) -> relax.Expr:
    """An expression whose attributes say what was compared.

    Numbers have so many digits; axes are counted from the front; what repeats the type of the
    result is left out.
    """
    from ..relay.nested_expressions import rewrite

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not isinstance(new, relax.Call) or not isinstance(new.attrs, tvm.ir.DictAttrs):
            return new  # Relax's own operators are compared as they are
        attrs = dict(new.attrs.items())
        changed: dict[str, Any] = {
            key: round(v, _DIGITS)
            for key, v in attrs.items()
            if isinstance(v, float) and v != round(v, _DIGITS)
        }
        axis = attrs.get("axis")
        if isinstance(axis, int) and axis < 0 and _has_same_rank(new):
            changed["axis"] = axis + new.ty.ndim
        changed.update((key, no) for key, no in _ABSENT.items() if _repeats_type(key, attrs, new))
        if not changed:
            return new
        made = tvm.ir.make_node("ir.DictAttrs", **{**attrs, **changed})
        call = relax.Call(new.op, list(new.args), made)
        if not new.ty.is_missing():
            set_type(call, new.ty)
        return call

    return rewrite(body, change)


_ABSENT = {"units": None, "out_dtype": ""}
"""Attributes that importers gave some operators and builders left out."""


def _repeats_type(key: str, attrs: dict[str, Any], call: relax.Call) -> bool:
    """Whether a call's attribute of `_ABSENT` says what the type of its result does."""
    ty, value = call.ty, attrs.get(key)
    if not value or not isinstance(ty, relax.TensorType):
        return False
    if key == "out_dtype":
        return str(value) == str(ty.dtype)
    return ty.shape is not None and _extents_equal(ty.shape.values[-1], value)


def _has_same_rank(call: relax.Call) -> bool:
    """Whether a call's result has the axes of its first operand."""
    tensors = [call.ty, *(each.ty for each in call.args[:1])]
    ranks = {each.ndim for each in tensors if isinstance(each, relax.TensorType)}
    return len(tensors) == 2 and len(ranks) == 1 and min(ranks) > 0


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two objects are the same but for the names of their variables."""
    mapped = map_free_vars or _is_closed(lhs)
    return bool(tvm_ffi.structural_equal(comparable(lhs), comparable(rhs), mapped))


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raises ValueError, which shows the first difference, unless `structural_equal`."""
    left, right, mapped = comparable(lhs), comparable(rhs), map_free_vars or _is_closed(lhs)
    try:
        _assert_equal(left, right, mapped)
    except TypeError:  # TVMScript has no form for functions over data
        paths = tvm_ffi.get_first_structural_mismatch(left, right, mapped)
        if paths is None:
            raise
        raise ValueError(f"StructuralEqual check failed: {paths[0]} and {paths[1]}") from None


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """A hash that is the same for objects that are `structural_equal`."""
    return int(tvm_ffi.structural_hash(comparable(node), map_free_vars or _is_closed(node)))


def _is_closed(node: Any) -> bool:
    """Whether the only free variables are extents that are known only at run time.

    Relay had one `Any()` for all of them, which was equal to itself.
    """
    return isinstance(node, (tvm.IRModule, relax.Function))


def types_equal(lhs: Any, rhs: Any) -> bool:
    """Whether two types are equal; extents that are only known at run time count as equal."""
    if isinstance(lhs, relax.TupleType) and isinstance(rhs, relax.TupleType):
        return len(lhs.fields) == len(rhs.fields) and all(map(types_equal, lhs.fields, rhs.fields))
    if not isinstance(lhs, relax.TensorType) or not isinstance(rhs, relax.TensorType):
        return bool(tvm_ffi.structural_equal(lhs, rhs))
    if str(lhs.dtype) != str(rhs.dtype) or lhs.ndim != rhs.ndim:
        return False
    if lhs.shape is None or rhs.shape is None:
        return lhs.shape is None and rhs.shape is None
    return all(map(_extents_equal, lhs.shape.values, rhs.shape.values))


def _extents_equal(lhs: Any, rhs: Any) -> bool:
    from ..relay.ty import is_any

    if is_any(lhs) or is_any(rhs):
        return is_any(lhs) and is_any(rhs)
    return bool(tvm.sym.Analyzer().can_prove_equal(lhs, rhs))


def change(patches: Patches) -> None:
    """Let `tvm.ir` compare as it did."""
    patches.set(tvm.ir, "assert_structural_equal", assert_structural_equal)
    patches.set(tvm.ir, "structural_equal", structural_equal)
    patches.set(tvm.ir, "structural_hash", structural_hash)
    for owner in (tvm.ir.Type, relax.TensorType, relax.TupleType):
        patches.set(owner, "__eq__", types_equal)
