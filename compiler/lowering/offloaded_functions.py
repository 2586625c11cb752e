"""Offloaded functions: their targets, constants and inlining into `main`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from .. import target as targets
from ..ir import dynamic_shape
from ..ir.rewrite import expressions_in, functions_by_name, relax_functions, substituted
from ..ir.scopes import set_type
from ..tvm_workarounds.inlined_sizes import with_own_sizes
from .report import Kernel

BACKEND = "baton.backend"
RELAY_FUNCTION = "baton.relay_function"  # what `relay.ext.<backend>` compiles
INPUT_NAMES = "baton.input_names"
OPERATORS = "baton.operators"
"""Attribute of a function whose backend compiled it: JSON list of the operators it had."""
FLOPS = "baton.flops"
"""Attribute of such a function: floating-point operations of one call."""
VARIANT = "baton.variant"
"""Attribute of a function that `main` calls for some extents of its arguments."""
RUNTIME = "baton.runtime"
"""Attribute of such a function: what runs it, "tvm" or a runtime of `compiler.runtime.foreign`."""


def function_targets(mod: tvm.IRModule, target: Target) -> dict[str, Target]:
    """Target of each Relax function at operator level: its attribute `target`, else the build's.

    A target that names only the kind of the build's target is the build's target.
    """
    chosen = {}
    for gvar, function in relax_functions(mod):
        own = function.attrs.get("target") if function.attrs else None
        is_builds = own is None or str(own).strip() == str(target.kind.name)
        chosen[gvar.name_hint] = target if is_builds else targets.parse(own, target.host)
    return chosen


def backends(mod: tvm.IRModule) -> dict[str, str]:
    """Backend of each function that a partitioner selected."""
    return {
        gvar.name_hint: str(function.attrs[BACKEND])
        for gvar, function in relax_functions(mod)
        if function.attrs and BACKEND in function.attrs
    }


def call_counts(mod: tvm.IRModule) -> Counter[str]:
    """How often an inference runs each Relax function."""
    functions = functions_by_name(mod)
    times = Counter(call.op.name_hint for f in functions.values() for call in calls_in(f))
    return Counter({name: max(times[name], 1) for name in functions})


def calls_in(function: relax.Function) -> list[relax.Call]:
    """Calls of the module's functions."""
    calls = expressions_in(function, relax.Call)
    return [call for call in calls if isinstance(call.op, relax.GlobalVar)]


def bind_constant_arguments(mod: tvm.IRModule) -> tvm.IRModule:
    """Move constants that `main` passes to an offloaded function into the function.

    There they can be folded and packed for the function's schedules. A function that is called
    more than once keeps its parameters, since the calls may pass different constants.
    """
    calls: dict[str, list[relax.Call]] = {name: [] for name in backends(mod)}
    for call in calls_in(mod["main"]):
        calls.get(call.op.name_hint, []).append(call)
    bound: dict[str, tuple[Any, set[int]]] = {}
    functions = dict(mod.functions_items())
    for name, found in calls.items():
        constants = {
            index: arg
            for index, arg in enumerate(found[0].args if len(found) == 1 else ())
            if isinstance(arg, tvm.ir.GenericConst)
        }
        if constants:
            function = _without_parameters(mod[name], constants)
            gvar = new_global_var(name, function.ty)
            bound[name] = (gvar, set(constants))
            del functions[mod.get_global_var(name)]
            functions[gvar] = function
    if bound:
        functions[mod.get_global_var("main")] = _FewerArguments(bound).visit_expr(mod["main"])
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _without_parameters(
    function: relax.Function, constants: Mapping[int, tvm.ir.GenericConst]
) -> relax.Function:
    values = {function.params[index]: constant for index, constant in constants.items()}
    kept = [var for var in function.params if var not in values]
    attrs = dict(function.attrs)
    names = json.loads(str(attrs[INPUT_NAMES]))
    attrs[INPUT_NAMES] = json.dumps([n for i, n in enumerate(names) if i not in constants])
    body = substituted(function.body, values)
    return relax.Function(
        kept, body, function.ret_ty, function.is_pure, tvm.ir.make_node("ir.DictAttrs", **attrs)
    )


@relax.expr_functor.mutator
class _FewerArguments(relax.expr_functor.PyExprMutator):
    """Drops the arguments that became constants of the called function."""

    def __init__(self, bound: Mapping[str, tuple[Any, set[int]]]) -> None:
        super().__init__()
        self.bound = bound

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        if not isinstance(op.op, relax.GlobalVar) or op.op.name_hint not in self.bound:
            return super().visit_call_(op)
        gvar, dropped = self.bound[op.op.name_hint]
        args = [self.visit_expr(arg) for i, arg in enumerate(op.args) if i not in dropped]
        return self.builder_.normalize(relax.Call(gvar, args, op.attrs, op.ty_args))


def new_global_var(name: str, ty: Any) -> Any:
    """A global variable of a known type, for a function that is not in a module yet."""
    return set_type(tvm.ir.GlobalVar(name), ty)


def inline_subgraphs(mod: tvm.IRModule) -> tvm.IRModule:
    """Inline the scheduled subgraph functions into main, so that memory is planned once."""

    def is_renewed(function: Any) -> bool:
        attrs = function.attrs if isinstance(function, relax.Function) else None
        return attrs is not None and (BACKEND in attrs or VARIANT in attrs)

    functions = {
        gvar: with_own_sizes(function) if is_renewed(function) else function
        for gvar, function in mod.functions_items()
    }
    mod = tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    mod = relax.transform.InlinePrivateFunctions()(mod)
    if any(map(is_renewed, functions.values())):
        for gvar, function in relax_functions(mod):
            # KillAfterLastUse drops a match whose variable is used for its size alone.
            mod[gvar] = dynamic_shape.with_known_casts(function)
    return mod


def inline_into_callers(mod: tvm.IRModule, names: Collection[str]) -> tvm.IRModule:
    """Inline some functions, which call none of each other, and remove them."""
    bodies, callers = {}, {}
    for gvar, function in mod.functions_items():
        if gvar.name_hint in names:
            bodies[gvar] = with_own_sizes(function)
        else:
            callers[gvar] = function
    if not bodies:
        return mod
    for gvar, function in callers.items():
        if isinstance(function, relax.Function):
            callers[gvar] = function.inline_functions(bodies)
    made = tvm.IRModule(callers, attrs=mod.attrs, global_infos=mod.global_infos)
    return relax.transform.Normalize()(made)


def partition_info(
    mod: tvm.IRModule, chosen: Mapping[str, Target], flops: Mapping[str, int | None]
) -> dict[str, Any]:
    """Description of every subgraph in the library's metadata, before operators become kernels.

    `flops`: floating-point operations of one call of each subgraph; None if unknown. Each entry, in
    module order, has "backend", "target", "runtime" (what runs it, "tvm" unless its backend
    compiled it for another), "operators" in execution order, "inputs" and "outputs" (each with
    "name", "shape" and "dtype"; the name is that of the model's parameter, or "" for a value that
    `main` computes), "flops" (None if unknown), and "attrs".
    """
    info = {}
    for name, backend in backends(mod).items():
        function = mod[name]
        attrs = {
            str(key): str(value)
            for key, value in function.attrs.items()
            if str(key) not in ("target", "global_symbol", BACKEND, OPERATORS, FLOPS, RUNTIME)
        }
        names, known = json.loads(attrs[INPUT_NAMES]), dynamic_shape.names(function)
        result = function.ret_ty
        results = result.fields if isinstance(result, relax.TupleType) else [result]
        info[name] = {
            "backend": backend,
            "target": targets.to_cli(chosen[name]),
            "runtime": str(function.attrs.get(RUNTIME, "tvm")),
            "operators": operators_of(function),
            "inputs": [
                _tensor(n, var.ty, known)
                for n, var in zip(names, function.params)
                if isinstance(var.ty, relax.TensorType)
            ],
            "outputs": [_tensor(f"output{i}", ty, known) for i, ty in enumerate(results)],
            "flops": json.loads(str(function.attrs[FLOPS]))
            if FLOPS in function.attrs
            else flops.get(name),
            "attrs": attrs,
        }
    return info


def subgraph_flops(mod: tvm.IRModule, kernels: Iterable[Kernel]) -> dict[str, int | None]:
    """Operations per call of each selected function; None if those of a kernel are unknown."""
    known = {kernel.name: kernel.flops for kernel in kernels}

    def flops(name: str) -> int | None:
        if name in known:
            return known[name]
        is_relax = isinstance(mod[name], relax.Function)
        calls = expressions_in(mod[name], relax.Call) if is_relax else []
        called = (callee for call in calls for callee in (call.op, *call.args[:1]))
        return sum_if_known(
            [flops(each.name_hint) for each in called if isinstance(each, relax.GlobalVar)]
        )

    return {name: flops(name) for name in backends(mod)}


def sum_if_known(counts: Iterable[int | None]) -> int | None:
    every = list(counts)
    return None if None in every else sum(count for count in every if count is not None)


def operators_of(function: relax.Function) -> list[str]:
    """Operators of a selected function in order, as before lowering, without "relax."."""
    if function.attrs and OPERATORS in function.attrs:
        return list(json.loads(str(function.attrs[OPERATORS])))
    return [
        str(expr.op.name).removeprefix("relax.")
        for expr in expressions_in(function, relax.Call)
        if isinstance(expr.op, tvm.ir.Op)
    ]


def _tensor(name: str, ty: Any, known: Mapping[Any, str]) -> dict[str, Any]:
    shape = getattr(ty, "shape", None)
    dims = shape.values if isinstance(shape, relax.ShapeExpr) else []
    extents = [dynamic_shape.number_or_text(dim, known) for dim in dims]
    return {"name": name, "shape": extents, "dtype": str(getattr(ty, "dtype", ""))}
