"""`relay.Function`, and binding of function parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm_ffi.dataclasses import field, py_class

from ..errors import RelayError, RelayTypeError, UntypedVariableError
from .adt import EXPRESSIONS, Match
from .call import Call
from .expr import Node, as_expr, const, is_written_let
from .nested_expressions import dict_attrs, handle, local_function, nested, rewrite
from .relay_to_relax import function_of
from .ty import PolymorphicType, mentions_data
from .type_infer import infer_type, infer_type_if_possible, set_type, type_of
from .variables import free_vars, global_vars, nodes


@py_class("baton.relay.OpenFunction")
class OpenFunction(tvm.ir.BaseFunc):
    """A function that has no Relax equivalent, or is not fully typed yet.

    Scripts write patterns and the bodies of composite functions with untyped parameters; a call
    specializes these to its argument types. Functions that use algebraic data types or call such
    functions are evaluated when a module is compiled.
    """

    params: Any = field(structural_eq="def")
    body: tvm.ir.Expr
    ret_type: Any
    type_params: Any = field(structural_eq="def")
    written: Any = field(structural_eq="ignore", default=None)  # the body with lets, for analyses

    def __init__(
        self,
        params: Sequence[relax.Var],
        body: relax.Expr,
        attrs: Any = None,
        ret_type: Any = None,
        type_params: Sequence[Any] = (),
    ) -> None:
        self.__ffi_init__(
            attrs=dict_attrs(dict(attrs.items()) if attrs is not None else {}),
            params=list(params),
            body=body,
            ret_type=ret_type,
            type_params=list(type_params),
        )

    @property
    def is_program(self) -> bool:
        """Whether the function needs evaluation, rather than only types for its tensors."""
        return bool(self.type_params) or needs_evaluation(self)

    @property
    def result_type(self) -> Any:
        """The declared return type, else the type of the body; None if unknown."""
        return type_of_branches(self.body) if self.ret_type is None else self.ret_type

    @property
    def checked_type(self) -> Any:
        """The declared function type, or the inferred one; ValueError if it can't be inferred."""
        types, result = [var.ty for var in self.params], self.result_type
        if result is None or any(ty.is_missing() for ty in types):
            raise ValueError("the function does not say what it takes and returns")
        if self.type_params:
            return PolymorphicType(types, result, list(self.type_params))
        return relax.FuncType(types, result)

    def of(self, arguments: Sequence[relax.Expr] = ()) -> relax.Function:
        """Specialize to arguments of these types; UntypedVariableError if a parameter has none."""
        for parameter, argument in zip(self.params, arguments):
            if parameter.ty.is_missing():
                set_type(parameter, infer_type(argument).ty)
        for parameter in self.params:
            if parameter.ty.is_missing():
                raise UntypedVariableError(
                    f"parameter {parameter.name} has no type, and no operator says what it must be"
                )
        return function_of(self.params, infer_type(self.body), dict(self.attrs.items()) or None)

    def untyped(self) -> relax.Function:
        """The function with parameters of any type, for printing and traversal; cannot be built."""
        parameters = [relax.Var(str(each.name), each.ty) for each in self.params]
        copies = dict(zip(map(handle, self.params), parameters))
        body = rewrite(self.body, lambda old, new: copies.get(handle(old), new))
        return local_function(parameters, body, dict(self.attrs.items()) or None)

    def astext(self, show_meta_data: bool = True, annotate: Any = None) -> str:
        """Print the function as Relay text, with untyped parameters."""
        from .text.from_relax import open_function_of
        from .text.writer import write_function

        if annotate is not None:
            raise RelayError("annotate= is not supported; print the module and add comments there")
        function, free = open_function_of(free_vars(self), self)
        return write_function(function, show_meta_data, free)

    def __call__(self, *arguments: Any) -> relax.Expr:
        return Call(self, arguments)


class Function(metaclass=Node):
    """`relay.Function(params, body, ret_type, type_params, attrs)` creates a `relax.Function`.

    The expressions of the body are bound in data-flow order, shared expressions once. Creates an
    `OpenFunction` as long as a parameter has no type that an operator determines.
    """

    node = (relax.Function, OpenFunction)

    def __new__(
        cls,
        params: Sequence[relax.Var],
        body: Any,
        ret_type: Any = None,
        type_params: Sequence[Any] | None = None,
        attrs: Any = None,
        span: Any = None,
    ) -> Any:
        value = infer_type_if_possible(as_expr(body))
        types = [each.ty for each in (*params, value)] + ([] if ret_type is None else [ret_type])
        is_open = bool(type_params) or any(map(mentions_data, types))
        if value.ty.is_missing() and not is_open:
            returned = type_of_branches(value) if ret_type is None else ret_type
            if returned is not None:
                _declare_itself(params, value, returned)
                value = infer_type_if_possible(value)
        if is_open or any(each.ty.is_missing() for each in (*params, value)):
            made = OpenFunction(params, value, attrs, ret_type, type_params or ())
            made.written = body if is_written_let(body) else None
            return made
        made = function_of(params, value, attrs)
        if ret_type is not None and _differ(ret_type, made.ret_ty):
            raise RelayTypeError(
                f"the function returns {type_of(made.ret_ty)}, ret_type says {type_of(ret_type)}"
            )
        return made


def needs_evaluation(expr: Any) -> bool:
    """Whether an expression has no Relax equivalent, such as data; missing types do not count."""
    for node in nodes(expr):
        if isinstance(node, EXPRESSIONS) or mentions_data(node.ty):
            return True
        if isinstance(node, OpenFunction) and node.type_params:
            return True
        if isinstance(node, relax.Call) and _is_unknown(node.op):
            return True
    return False


def _is_unknown(called: relax.Expr) -> bool:
    """Whether the result type of calling this expression is unknown."""
    if isinstance(called, tvm.ir.Op):
        return False
    return isinstance(called, EXPRESSIONS) or (
        not isinstance(called, (relax.Function, OpenFunction)) and called.ty.is_missing()
    )


def _declare_itself(params: Sequence[relax.Var], body: relax.Expr, ret_type: Any) -> None:
    """Type recursive calls: only the function itself can be an untyped global in its body."""
    if any(var.ty.is_missing() for var in params):
        return
    called = {handle(name): name for name in global_vars(body) if name.ty.is_missing()}
    if len(called) == 1:
        (itself,) = called.values()
        set_type(itself, relax.FuncType([var.ty for var in params], ret_type))


def type_of_branches(body: relax.Expr) -> Any:
    """Type of the body, else of the first branch that has a type; None if none has one."""
    if not body.ty.is_missing():
        return body.ty
    if isinstance(body, relax.SeqExpr):
        branches = [body.body]
    elif isinstance(body, relax.If):
        branches = [body.true_branch, body.false_branch]
    else:
        branches = [clause.rhs for clause in body.clauses] if isinstance(body, Match) else []
    return next((ty for ty in map(type_of_branches, branches) if ty is not None), None)


def _differ(declared: Any, given: Any) -> bool:
    """Whether two types certainly differ; a symbolic extent is compatible with everything."""
    if isinstance(declared, relax.TupleType) and isinstance(given, relax.TupleType):
        return len(declared.fields) != len(given.fields) or any(
            map(_differ, declared.fields, given.fields)
        )
    if not isinstance(declared, relax.TensorType) or not isinstance(given, relax.TensorType):
        return type(declared) is not type(given)
    if str(declared.dtype) != str(given.dtype):
        return True
    if declared.shape is None or given.shape is None:
        return False
    if len(declared.shape.values) != len(given.shape.values):
        return True
    return any(
        isinstance(a, tvm.tirx.IntImm) and isinstance(b, tvm.tirx.IntImm) and int(a) != int(b)
        for a, b in zip(declared.shape.values, given.shape.values)
    )


def bind(expr: Any, binds: Mapping[relax.Var, Any]) -> Any:
    """Replace variables with expressions; replaced parameters leave the parameter list."""
    values = {var: infer_type(as_expr(value)) for var, value in binds.items()}
    if not isinstance(expr, relax.Function):
        return nested(function_of([], _with_values(infer_type(as_expr(expr)), values)))
    left = [var for var in expr.params if var not in values]
    return function_of(left, _with_values(expr.body, values), expr.attrs)


def _with_values(body: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """Bind variables to values before a body."""
    bindings = [relax.VarBinding(var, value) for var, value in values.items()]
    return set_type(relax.SeqExpr([relax.BindingBlock(bindings)], body), body.ty)


def bind_params_by_name(func: relax.Function, params: Mapping[str, Any]) -> relax.Function:
    """Replace the parameters named in `params` with constants, ignoring unknown names.

    Raises RelayTypeError: a value does not fit its parameter, or several parameters share its name.
    """
    values: dict[relax.Var, Any] = {}
    names = [str(var.name) for var in func.params]
    for var, name in zip(func.params, names):
        if name not in params:
            continue
        if names.count(name) > 1:
            raise RelayTypeError(f"several parameters are called {name!r}")
        made = _constant(params[name], var)
        if _differ(var.ty, made.ty):
            raise RelayTypeError(
                f"parameter {name!r} is {type_of(var)}, the value is {type_of(made)}"
            )
        values[var] = made
    return bind(func, values)


def _constant(value: Any, var: relax.Var) -> relax.Expr:
    """Convert a value to a constant; keeps a dtype equal to the parameter's, else see `const`."""
    if hasattr(value, "numpy"):
        return const(value, str(value.dtype))
    wanted = str(var.ty.dtype) if isinstance(var.ty, relax.TensorType) else ""
    if not isinstance(value, (np.ndarray, np.generic)):
        return const(np.asarray(value, wanted or None), wanted or None)
    array = np.asarray(value)
    return const(array, str(array.dtype)) if str(array.dtype) == wanted else const(value)
