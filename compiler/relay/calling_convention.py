"""Parameters and results of functions, as the build driver and as callers see them.

The driver compiles a `main` over tensors. Relay functions also take and return tuples, possibly
nested. An `Interface` describes the nesting, flattens arguments and regroups results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax

from ..errors import BuildError, InputError
from ..ir.constants import leaf_types
from ..ir.rewrite import expressions_in, with_functions
from ..ir.scopes import has_local_functions
from .adt_eval import evaluated
from .function import OpenFunction
from .nested_expressions import nested
from .op import registry
from .relax_to_relay import imported_relax_module
from .relay_to_relax import Flattener, function_of, lower
from .type_infer import infer_type

Nesting: TypeAlias = "list[Nesting] | None"
"""Nesting of a value: None for a tensor, a list of the fields' nestings for a tuple."""


def nesting(ty: Any) -> Nesting:
    """Tuple nesting of a type; anything but a tuple counts as one value."""
    return [nesting(field) for field in ty.fields] if isinstance(ty, relax.TupleType) else None


def tensors(count: int) -> Nesting:
    """Nesting of a flat result of `count` tensors."""
    return None if count == 1 else [None for _ in range(count)]


@dataclass(frozen=True)
class Interface:
    """Signature of a function: ordered parameter names, nesting of parameters and result."""

    names: list[str]
    parameters: list[Nesting]
    result: Nesting

    @staticmethod
    def of(function: relax.Function) -> Interface:
        """Describe the interface of a function."""
        names = [str(var.name) for var in function.params]
        parameters = [nesting(var.ty) for var in function.params]
        return Interface(names, parameters, nesting(function.ret_ty))

    def ordered(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Order arguments by parameter; InputError if one is missing, given twice or unknown."""
        if len(args) == len(self.names) and not kwargs:
            return list(args)
        listed = ", ".join(self.names) or "no arguments"
        if len(args) > len(self.names):
            raise InputError(f"the function takes {listed}; {len(args)} arguments are given")
        twice = [name for name in self.names[: len(args)] if name in kwargs]
        unknown = [name for name in kwargs if name not in self.names]
        missing = [name for name in self.names[len(args) :] if name not in kwargs]
        for names, fault in (
            (twice, "given by position and by name"),
            (unknown, "not one of them"),
            (missing, "missing"),
        ):
            if names:
                raise InputError(f"the function takes {listed}; {', '.join(names)}: {fault}")
        return [*args, *(kwargs[name] for name in self.names[len(args) :])]

    def to_json(self) -> dict[str, Any]:
        """Convert to plain lists and dicts for `from_json`."""
        return {"names": self.names, "parameters": self.parameters, "result": self.result}

    @staticmethod
    def from_json(data: Any) -> Interface:
        """Read the output of `to_json`; KeyError, TypeError, ValueError for another structure."""
        names = [*map(str, data["names"])]
        parameters = [_checked(each) for each in data["parameters"]]
        if len(parameters) != len(names):
            raise ValueError(f"{len(names)} parameters have {len(parameters)} descriptions")
        return Interface(names, parameters, _checked(data["result"]))


def _checked(data: Any) -> Nesting:
    if data is None:
        return None
    if not isinstance(data, list):
        raise TypeError(f"expected a list or null, got {type(data).__name__}")
    return [_checked(each) for each in data]


def leaves(value: Any, parts: Nesting) -> list[Any]:
    """Flatten a value into its tensors, in order; InputError if its structure is not `parts`."""
    if parts is None:
        return [value]
    if not isinstance(value, (list, tuple)) or len(value) != len(parts):
        raise InputError(f"expected a tuple of {len(parts)} values, got {type(value).__name__}")
    return [leaf for each, part in zip(value, parts) for leaf in leaves(each, part)]


def only_tensor(value: Any, rank: int) -> Any:
    """Unwrap a one-tuple of a tensor of this rank, as Relay's VM did; keep other values."""
    if isinstance(value, tuple) and len(value) == 1 and getattr(value[0], "ndim", None) == rank:
        return value[0]
    return value


def grouped(values: Iterator[Any], parts: Nesting) -> Any:
    """Regroup flat tensors into nested lists; inverse of `leaves`."""
    return next(values) if parts is None else [grouped(values, part) for part in parts]


def as_module(mod: Any) -> tvm.IRModule:
    """Convert to Relax operators and a `main` of one flat result; BuildError for other values."""
    registry.names()  # register all operator names: reports use them to name kernels
    imported = imported_relax_module(mod)
    whole = module_of(mod if imported is None else imported)
    for gvar in whole.get_global_vars():
        _require_callees(whole, str(gvar.name_hint))
    return lower(_with_flat_result(whole))


def is_closed(mod: tvm.IRModule) -> bool:
    """Whether lowering adds no functions and preserves parameters and results.

    If so, values can be bound and the cache key can be computed before lowering.
    """
    return all(map(_is_closed, (function for _, function in mod.functions_items())))


def _is_closed(function: Any) -> bool:
    if not isinstance(function, relax.Function):
        return True
    result = function.ret_ty
    results = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    return (
        "Compiler" not in (function.attrs or {})
        and all(
            isinstance(ty, relax.TensorType) for ty in [*(p.ty for p in function.params), *results]
        )
        and not has_local_functions(function.body)
    )


def module_of(mod: Any) -> tvm.IRModule:
    """Wrap a function as `main` of a new module, keep a module; BuildError for other values."""
    if isinstance(mod, (relax.Function, OpenFunction)):
        mod = as_main(mod)
    if not isinstance(mod, tvm.IRModule):
        raise BuildError(
            f"expected a tvm.IRModule or a relax.Function, got {type(mod).__name__}; a frontend "
            "returns (mod, params): pass mod, and params as params="
        )
    return evaluated(mod)


def as_main(
    function: relax.Function | OpenFunction, mod: tvm.IRModule | None = None
) -> tvm.IRModule:
    """Make a function the `main` of a copy of a module, by default of an empty one.

    Raises BuildError: it calls a function that the module lacks.
    """
    if isinstance(function, OpenFunction) and not function.is_program:
        function = function.of()
    made = tvm.IRModule() if mod is None else mod.clone()
    made["main"] = function.without_attr("global_symbol")
    _require_callees(made, "main")
    return made


def _require_callees(mod: tvm.IRModule, caller: str) -> None:
    """Raise BuildError if a function calls one that its module lacks."""
    known = {str(gvar.name_hint) for gvar in mod.get_global_vars()}
    function = mod[caller]
    called = isinstance(function, relax.Function) and expressions_in(function, tvm.ir.GlobalVar)
    for name in dict.fromkeys(str(gvar.name_hint) for gvar in called or ()):
        if name not in known:
            raise BuildError(
                f"{caller} calls {name!r}, which the module lacks; give the module that has both, "
                f"not mod[{caller!r}] alone"
            )


def _with_flat_result(mod: tvm.IRModule) -> tvm.IRModule:
    """Flatten the result of `main` to one tuple of tensors."""
    names = [gvar.name_hint for gvar in mod.get_global_vars()]
    if "main" not in names or not isinstance(mod["main"], relax.Function):
        return mod
    flat = _flat_function(mod["main"])
    if flat.same_as(mod["main"]):
        return mod
    return with_functions(mod, {mod.get_global_var("main"): flat})


def with_tensor_parameters(function: relax.Function) -> relax.Function:
    """Replace each tuple parameter with one parameter `<name>_<i>` per tensor."""
    if not any(isinstance(var.ty, relax.TupleType) for var in function.params):
        return function
    flattener = Flattener()
    parameters: list[relax.Var] = []
    for var in function.params:
        if not isinstance(var.ty, relax.TupleType):
            parameters.append(var)
            continue
        made = [relax.Var(f"{var.name}_{i}", ty) for i, ty in enumerate(leaf_types(var.ty))]
        parameters.extend(made)
        flattener.remember(var, _tuple(iter(made), nesting(var.ty)))
    body = flattener.sequence(function.body)
    return relax.Function(parameters, body, body.ty, function.is_pure, function.attrs)


def _tuple(values: Iterator[relax.Expr], parts: Nesting) -> relax.Expr:
    if parts is None:
        return next(values)
    return infer_type(relax.Tuple([_tuple(values, part) for part in parts]))


def _flat_function(function: relax.Function) -> relax.Function:
    """Flatten a result of nested tuples to one tuple of tensors."""
    result = function.ret_ty
    fields = result.fields if isinstance(result, relax.TupleType) else []
    if not any(isinstance(field, relax.TupleType) for field in fields):
        return function
    return function_of(function.params, relax.Tuple(_fields(nested(function))), function.attrs)


def _fields(value: relax.Expr) -> list[relax.Expr]:
    """Fields of a tuple and of nested tuples, in order."""
    if not isinstance(value.ty, relax.TupleType):
        return [value]
    if isinstance(value, relax.Tuple):
        fields = list(value.fields)
    else:
        fields = [infer_type(relax.TupleGetItem(value, i)) for i in range(len(value.ty.fields))]
    return [leaf for field in fields for leaf in _fields(field)]


def dtypes(ty: Any) -> Any:
    """Dtypes of the tensors in a type, with the same nesting; None for a tensor without a dtype."""
    if isinstance(ty, relax.TupleType):
        return [dtypes(field) for field in ty.fields]
    known = isinstance(ty, relax.TensorType) and ty.dtype is not None
    return str(ty.dtype) if known else None


def as_argument(value: Any, wanted: Any = None) -> Any:
    """Convert a value to tensors or tuples of them; arrays are copied to the dtypes `wanted`."""
    if isinstance(value, tvm.runtime.Tensor):
        return value
    if isinstance(value, (list, tuple)) and not isinstance(wanted, str):
        parts = [None] * len(value) if wanted is None else wanted
        if len(parts) != len(value):
            raise InputError(f"expected a tuple of {len(parts)} values, got {len(value)}")
        return tuple(map(as_argument, value, parts))
    array = np.asarray(value)
    if wanted is not None:
        array = array.astype(wanted, copy=False)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
