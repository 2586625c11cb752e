"""Subgraphs compiled by their backend's external code generator.

    before   def subgraph(x, w):  lv = nn.dense(x, w)
                                  return nn.relu(lv)
    after    def subgraph(x, w):  return R.call_dps_packed("baton.foreign.run", (code, x), ...)

The code is a constant and is stored among the library's weights. GPU code is source text, and the
constants of its operators are passed as ordinary arguments:

    after    def subgraph(x):  lv = R.call_dps_packed("baton.foreign.cuda", ("...", x, constant),
                                                      (type of the result, workspace))
                               return lv[0]
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.target import Target

from .. import target as targets
from ..backends import COMPILE_OPTIONS, get_partitioner, list_partitioners
from ..errors import BuildError
from ..ir.dynamic_shape import symbols_of
from ..ir.rewrite import expressions_in
from ..ir.scopes import rebuilt
from ..lowering.offloaded_functions import (
    BACKEND,
    FLOPS,
    INPUT_NAMES,
    OPERATORS,
    RELAY_FUNCTION,
    RUNTIME,
    calls_in,
    operators_of,
    sum_if_known,
)
from ..primfuncs.query import count_flops
from ..runtime import foreign
from ..tvm_workarounds.block_builder import BlockBuilder
from .c_source import with_object_code
from .calling_convention import as_module
from .relax_to_relay import to_relax


def compile_external(
    mod: tvm.IRModule, target: Target, params: Mapping[str, Any]
) -> tuple[tvm.IRModule, list[Any]]:
    """Call the external code generators of the subgraphs that have one.

    `main` of `mod`, which is not modified, has unbound parameters with the values `params`.
    External code runs on the host unless its backend compiles for the GPU. Returns the module with
    calls of external code in place of the operators, and the TVM modules that the library must
    import. Raises BuildError: a backend is not registered, or its `compile` raised or returned an
    invalid value.
    """
    names = [
        gvar.name_hint
        for gvar, function in mod.functions_items()
        if function.attrs and COMPILE_OPTIONS in function.attrs
    ]
    if not names:
        return mod, []
    foreign.register()
    functions, modules = dict(mod.functions_items()), []
    once = _called_once(mod, names)
    for name in names:
        gvar = mod.get_global_var(name)
        known = dict(params) if name in once else {}
        function = mod[gvar]
        if _device(function) == "cuda":
            _require_cuda(name, function, target)
        if _device(function) != "cuda":
            _require_known_extents(name, function)
        code, values = _code(name, function, known)
        counted = _flops(as_module(tvm.IRModule({"main": _public(function, "main")})), target)
        if _device(function) == "cuda":
            module, functions[gvar] = None, _calling_on_cuda(function, code, counted)
        else:
            functions[gvar], module = _calling(name, function, code, values, target, counted)
        modules += [] if module is None else [module]
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos), modules


def check_external(mod: tvm.IRModule, name: str, params: Mapping[str, Any]) -> None:
    """Raise BuildError if an external backend selected for a function cannot compile it."""
    if COMPILE_OPTIONS in mod[name].attrs:
        _code(name, mod[name], dict(params) if _called_once(mod, [name]) else {})


def _where(name: str, function: relax.Function) -> str:
    return f"subgraph {name} of backend {str(function.attrs[BACKEND])!r}"


def _require_known_extents(name: str, function: relax.Function) -> None:
    """Raise BuildError if the arguments do not tell the extents of a function's results."""
    known = {symbol for var in function.params for symbol in symbols_of(var.ty)}
    result = function.body.body.ty
    fields = result.fields if isinstance(result, relax.TupleType) else [result]
    for place, ty in enumerate(fields):
        is_open = isinstance(ty, relax.TensorType) and not isinstance(ty.shape, relax.ShapeExpr)
        if is_open or not known.issuperset(symbols_of(ty)):
            raise BuildError(
                f"{_where(name, function)}: values decide the extents of result {place} "
                f"({', '.join(operators_of(function))}), but external code writes to tensors that "
                "are allocated before; leave the operator that finds the extents to TVM"
            )


def _public(function: relax.Function, name: str) -> relax.Function:
    return function.with_attr("global_symbol", name)


def _code(
    name: str, function: relax.Function, params: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Compile a function with its backend; return the code and the parameter values it got."""
    on_cuda = _device(function) == "cuda"
    if RELAY_FUNCTION in function.attrs or on_cuda:
        params = {}  # these code generators take all parameters at run time
    originals = json.loads(str(function.attrs[INPUT_NAMES]))
    values = {
        var.name: params[original]
        for var, original in zip(function.params, originals)
        if original in params
    }
    compiled = _constants_as_parameters(function)[0] if on_cuda else _of_tensors(function)
    code = _call_backend(_where(name, function), name, compiled, values)
    if on_cuda and (
        not isinstance(code, foreign.ExternalCode) or code.runtime == foreign.IN_PROCESS
    ):
        raise BuildError(f"{_where(name, function)}: code for a GPU must be ExternalCode")
    if isinstance(code, tvm.runtime.Module) and not code.implements_function(name, True):
        raise BuildError(
            f"{_where(name, function)}: the module that compile returned has no function {name!r}"
        )
    return code, values


def _calling(
    name: str,
    function: relax.Function,
    code: Any,
    values: Mapping[str, Any],
    target: Target,
    flops: int | None,
) -> tuple[relax.Function, Any]:
    """Replace the body with a call of the code; also return the TVM module it needs, if any."""
    inputs = [var for var in _of_tensors(function).params if var.name not in values]
    module = code if isinstance(code, tvm.runtime.Module) else None
    arguments: list[Any] = list(inputs)
    if module is not None:
        callee = relax.ExternFunc(name)
    else:
        packed = np.frombuffer(code.pack(len(inputs)), "uint8")
        callee = relax.ExternFunc(foreign.RUN)
        arguments.insert(0, relax.const(packed, "uint8"))
    new = [relax.Var(var.name, var.ty) for var in function.params]
    renamed = {old: var for old, var in zip(function.params, new)}
    result = function.ret_ty
    fields = list(result.fields) if isinstance(result, relax.TupleType) else result
    arguments = [renamed.get(each, each) for each in arguments]
    call = relax.call_dps_packed(callee, relax.Tuple(arguments), fields)
    called = _with_body(new, lambda builder: builder.emit(call))
    attrs = _described(function, "tvm" if module is not None else code.runtime, flops)
    if targets.is_gpu(target) and "target" not in attrs:
        attrs["target"] = targets.to_cli(target.host)
    return called.with_attrs(attrs).without_attr("global_symbol"), module


def _of_tensors(function: relax.Function) -> relax.Function:
    """Drop the parameter that binds symbolic shapes; external code reads the extents of tensors."""
    params = [var for var in function.params if not isinstance(var.ty, relax.ShapeType)]
    if len(params) == len(function.params):
        return function
    return rebuilt(function, function.body, params)


def _calling_on_cuda(
    function: relax.Function, code: foreign.ExternalCode, flops: int | None
) -> relax.Function:
    """Replace the function body with a call of GPU code."""
    _, constants = _constants_as_parameters(function)
    new = [relax.Var(var.name, var.ty) for var in function.params]
    inputs = [*new, *constants]
    result = function.ret_ty
    fields = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    types = [*fields, *([relax.TensorType((code.workspace,), "uint8")] if code.workspace else [])]
    call = relax.call_dps_packed(
        relax.ExternFunc(foreign.RUN_ON_CUDA),
        relax.Tuple([tvm.ir.StringImm(code.pack_text(len(inputs))), *inputs]),
        types,
    )

    def body(builder: BlockBuilder) -> relax.Expr:
        results = builder.emit(call)
        if len(types) == 1:
            return results
        parts = [builder.emit(relax.TupleGetItem(results, i)) for i in range(len(fields))]
        return relax.Tuple(parts) if isinstance(result, relax.TupleType) else parts[0]

    attrs = _described(function, code.runtime, flops)
    return _with_body(new, body).with_attrs(attrs).without_attr("global_symbol")


def _with_body(
    params: list[relax.Var], body: Callable[[BlockBuilder], relax.Expr]
) -> relax.Function:
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            bound = builder.emit_output(body(builder))
        builder.emit_func_output(bound)
    return builder.get()["main"]


def _described(function: relax.Function, runtime: str, flops: int | None) -> dict[str, Any]:
    """Attributes of the function, plus those used by reports."""
    attrs = {
        **dict(function.attrs),
        OPERATORS: json.dumps(operators_of(function)),
        FLOPS: json.dumps(flops),
        RUNTIME: runtime,
    }
    attrs.pop(RELAY_FUNCTION, None)
    return attrs


def _constants_as_parameters(
    function: relax.Function,
) -> tuple[relax.Function, list[tvm.ir.GenericConst]]:
    """Append a parameter for each constant; return the function and the constants."""
    lifter = _ConstantLifter()
    body = lifter.visit_expr(function.body)
    lifted = rebuilt(function, body, [*function.params, *lifter.lifted.values()])
    return lifted, list(lifter.lifted)


@relax.expr_functor.mutator
class _ConstantLifter(relax.expr_functor.PyExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.lifted: dict[tvm.ir.GenericConst, relax.Var] = {}

    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        name = f"constant_{len(self.lifted)}"
        return self.lifted.setdefault(constant, relax.Var(name, constant.ty))


def _device(function: relax.Function) -> str:
    """Device on which the code of a function's backend runs."""
    known = RELAY_FUNCTION not in function.attrs and str(function.attrs[BACKEND])
    return get_partitioner(known).device if known in list_partitioners() else "cpu"


def _require_cuda(name: str, function: relax.Function, target: Target) -> None:
    if target.kind.name != "cuda":
        raise BuildError(
            f"{_where(name, function)} runs on NVIDIA's GPUs, and the build is for "
            f"{targets.to_cli(target)}; build for 'cuda'"
        )


def _call_backend(
    where: str, name: str, function: relax.Function, values: Mapping[str, Any]
) -> Any:
    if RELAY_FUNCTION in function.attrs:
        return with_object_code(_call_code_generator(where, function), name, where)
    backend = str(function.attrs[BACKEND])
    chosen = get_partitioner(backend) if backend in list_partitioners() else None
    if chosen is None or chosen.compile is None:
        raise BuildError(
            f"{where} is compiled by its backend, which is not registered; load its plugin first"
        )
    options = json.loads(str(function.attrs[COMPILE_OPTIONS]))
    subgraph = tvm.IRModule({name: _public(function, name)})
    arrays = {key: _array(value) for key, value in values.items()}
    try:
        code = chosen.compile(
            to_relax(subgraph) if chosen.compiles_relax else subgraph, arrays, options
        )
    except Exception as error:
        raise BuildError(f"{where}: compile raised {type(error).__name__}: {error}") from error
    if isinstance(code, tvm.runtime.Module):
        return with_object_code(code, name, where)
    if isinstance(code, foreign.ExternalCode):
        return code
    if callable(code):
        return foreign.in_process(code)
    raise BuildError(
        f"{where}: compile returned {code!r}, neither a callable nor ExternalCode nor a TVM module"
    )


def _call_code_generator(where: str, function: relax.Function) -> Any:
    """Call `relay.ext.<backend>` with the original Relay function."""
    name = f"relay.ext.{function.attrs[BACKEND]}"
    try:
        code = tvm.get_global_func(name)(function.attrs[RELAY_FUNCTION])
    except Exception as error:
        raise BuildError(f"{where}: {name} raised {type(error).__name__}: {error}") from error
    if not isinstance(code, tvm.runtime.Module):
        raise BuildError(f"{where}: {name} returned {code!r}, not a runtime module")
    return code


def _flops(mod: tvm.IRModule, target: Target) -> int | None:
    """Floating-point operations of `main` as plain TVM would compute them; None if unknown."""
    with target:
        mod = relax.transform.LegalizeOps()(mod)
    kernels = {
        gvar: func for gvar, func in mod.functions_items() if isinstance(func, tvm.tirx.PrimFunc)
    }
    calls = expressions_in(mod["main"], relax.Call)
    called = (call.args[0] for call in calls if call.args and call.args[0] in kernels)
    return sum_if_known([count_flops(kernels[gvar]) for gvar in called])


def _array(value: Any) -> np.ndarray:
    return value if isinstance(value, np.ndarray) else value.numpy()


def _called_once(mod: tvm.IRModule, names: list[str]) -> set[str]:
    """Functions with exactly one call, whose constant arguments can be embedded into the code."""
    calls = Counter(call.op.name_hint for call in calls_in(mod["main"]))
    return {name for name in names if calls[name] == 1}
