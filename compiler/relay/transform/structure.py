"""Structural passes: InferType, normal forms, dead code, inlining, legalization."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from ... import pass_context
from ...ir.rewrite import functions_by_name
from ...support.depth_first import depth_first
from .. import dialect
from ..adt_eval import callees, evaluated, only_needed
from ..nested_expressions import handle, make_call, nested, nested_function, rewrite
from ..relay_to_relax import Flattener
from .base import body_wise, map_functions, module_pass, with_body, with_functions


def _same(mod: tvm.IRModule) -> tvm.IRModule:
    return mod


def InferType() -> Any:
    """No-op: types are inferred during construction."""
    return module_pass("InferType", 0, _same)


def AnnotateSpans() -> Any:
    """No-op: expressions keep their spans, and errors show the expressions themselves."""
    return module_pass("AnnotateSpans", 0, _same)


def InferTypeLocal(expr: relax.Expr) -> Any:
    """Return the type of an expression."""
    return expr.ty


def ToANormalForm() -> Any:
    """Bind each operator call: the form that Relax modules always have."""
    return module_pass("ToANormalForm", 1, relax.transform.Normalize())


def ToANormalFormExpr(e: relax.Expr) -> relax.Expr:
    """Bind each operator call of one expression."""
    return Flattener().sequence(e)


def ToBasicBlockNormalForm() -> Any:
    """Bind each expression once, in a scope that all uses see: the form of Relax modules."""
    return module_pass("ToBasicBlockNormalForm", 1, relax.transform.Normalize())


def ToGraphNormalForm() -> Any:
    """Remove lets; a no-op, since passes see through the bindings of Relax modules."""
    return module_pass("ToGraphNormalForm", 1, _same)


def DeadCodeElimination(inline_once: bool = False, ignore_impurity: bool = False) -> Any:
    """Remove unused bindings; functions are kept."""
    del inline_once, ignore_impurity

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        names = [str(gvar.name_hint) for gvar in mod.get_global_vars()]
        return relax.transform.DeadCodeElimination(names)(mod)

    return module_pass("DeadCodeElimination", 1, run)


def RemoveUnusedFunctions(entry_functions: Sequence[str] | None = None) -> Any:
    """Remove functions that are unreachable from the entry functions."""
    entries = list(entry_functions or ["main"])
    return module_pass("RemoveUnusedFunctions", 1, lambda mod: only_needed(mod, *entries))


def PartialEvaluate() -> Any:
    """Evaluate data types, references and first-class functions in `main`; keep only its callees.

    Compilation does the same. Passes over operators then see the result.
    """
    return module_pass("PartialEvaluate", 1, evaluated)


def LambdaLift() -> Any:
    """Lift inner functions to module functions."""
    return module_pass("LambdaLift", 1, relax.transform.LambdaLift())


def Inline() -> Any:
    """Inline functions with the attribute `Inline`.

    Recursive functions are not inlined, nor functions that call functions that are kept. A
    function of an external compiler becomes an inner function of its caller. Functions inlined at
    all calls are removed; functions without calls are kept.
    """

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        functions = functions_by_name(mod)
        called = {name: callees(function) for name, function in functions.items()}
        ready: dict[str, relax.Function] = {}
        changed: dict[Any, relax.Function] = {}
        for name in _callees_first(called):
            function = functions[name]
            made = _inlined(function, ready)
            if not made.same_as(function):
                changed[mod.get_global_var(name)] = made
            stays = called[name] - set(ready)
            if (function.attrs or {}).get("Inline") and not stays:
                ready[name] = made
        if not changed:
            return mod
        drop = {name for name in ready if any(name in names for names in called.values())}
        made_mod = with_functions(mod, changed)
        kept = {g: f for g, f in made_mod.functions_items() if str(g.name_hint) not in drop}
        return tvm.IRModule(kept, attrs=mod.attrs, global_infos=mod.global_infos)

    return module_pass("InlineGlobals", 1, run)


def _callees_first(called: dict[str, set[str]]) -> list[str]:
    """Sort names so that callees precede callers, except in cycles."""
    return list(depth_first(called, lambda name: sorted(called[name] & called.keys())))


def _inlined(function: relax.Function, ready: dict[str, relax.Function]) -> relax.Function:
    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not isinstance(new, relax.Call) or not isinstance(new.op, tvm.ir.GlobalVar):
            return new
        callee = ready.get(str(new.op.name_hint))
        if callee is None:
            return new
        if callee.attrs is not None and "Compiler" in callee.attrs:
            return make_call(nested_function(callee), new.args, new.ty)
        values = {handle(var): arg for var, arg in zip(callee.params, new.args)}
        return rewrite(nested(callee), lambda old, made: values.get(handle(old), made))

    return with_body(function, lambda body: rewrite(body, change))


def Legalize(legalize_map_attr_name: str = "FTVMLegalize") -> Any:
    """Replace calls with the result of their operators' legalization attribute.

    The attribute is a function of the call's attributes, operands and types (of the operands and
    the result), which returns an expression or None.
    """

    def change(old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not dialect.is_relay(new) or not new.op.has_attr(legalize_map_attr_name):
            return new
        function = new.op.get_attr(legalize_map_attr_name)
        if function is None:  # attribute was reset
            return new
        types = [arg.ty for arg in new.args] + [old.ty]
        made = function(new.attrs, list(new.args), types)
        return new if made is None else made

    return body_wise("Legalize", 1, lambda body: rewrite(body, change))


def build_config(
    opt_level: int | None = None,
    required_pass: Sequence[str] | None = None,
    disabled_pass: Sequence[str] | None = None,
    trace: Any = None,
) -> tvm.transform.PassContext:
    """`tvm.transform.PassContext` under its TVM 0.6 name; default opt_level of a build."""
    del trace
    level = pass_context.DEFAULT_OPT_LEVEL if opt_level is None else opt_level
    return tvm.transform.PassContext(
        opt_level=level, required_pass=required_pass, disabled_pass=disabled_pass
    )


def function_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Create a pass from a function or class: `@relay.transform.function_pass(opt_level=1)`.

    Parameters
    ----------
    pass_func : callable or class
        `f(function, module, context)`, or a class with `transform_function` of these arguments.
    opt_level : int
        Optimization level of the pass.
    name : str, optional
        Name of the pass; by default the function's name.
    required
        Accepted without effect: Relay's passes required InferType, and types always exist.
    """
    del required

    def make(decorated: Any) -> Any:
        title = str(name or decorated.__name__)
        if not inspect.isclass(decorated):
            return _function_pass(decorated, opt_level or 0, title)

        def construct(*args: Any, **kwargs: Any) -> Any:
            instance: Any = decorated(*args, **kwargs)
            return _function_pass(instance.transform_function, opt_level or 0, title)

        construct.__name__ = title
        construct.__doc__ = decorated.__doc__
        return construct

    return make if pass_func is None else make(pass_func)


def _function_pass(transform: Callable[..., Any], level: int, name: str) -> Any:
    def run(mod: tvm.IRModule, context: Any) -> tvm.IRModule:
        return map_functions(mod, lambda function, whole: transform(function, whole, context))

    return tvm.transform.module_pass(run, opt_level=level, name=name)
