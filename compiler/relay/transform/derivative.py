"""`relay.transform.gradient`: reverse-mode differentiation by TVM's Relax pass."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from ...errors import RelayError, UnsupportedRelayOperatorError
from ..nested_expressions import nested
from ..relay_to_relax import function_of, lower
from ..type_infer import infer_type
from .base import map_functions, module_pass
from .build import tuple_of


def gradient(expr: Any, mod: tvm.IRModule | None = None, mode: str = "higher_order") -> Any:
    """Create a function that returns a function's result and its parameter gradients.

    Parameters
    ----------
    expr : relax.Function or GlobalVar
        Takes and returns tensors. For a non-scalar result, the gradient of the sum is computed,
        as in Relay.
    mod : tvm.IRModule, optional
        Module of a GlobalVar.
    mode : str
        "first_order" or "higher_order"; both return the same first derivatives here.

    Returns
    -------
    relax.Function
        Function of the same parameters; returns (result, (gradient, ...)), in Relax operators.

    Raises
    ------
    UnsupportedRelayOperatorError
        An operator has no gradient in Relax.
    """
    if mode not in ("first_order", "higher_order"):
        raise RelayError(f"gradient mode {mode!r} is not 'first_order' or 'higher_order'")
    if isinstance(expr, tvm.ir.GlobalVar):
        if mod is None:
            raise RelayError("gradient of a global function needs mod=")
        expr = mod[expr]
    return _differentiated(expr)


def FirstOrderGradient() -> Any:
    """Pass that makes every function of a module also return its gradients."""

    def change(mod: tvm.IRModule) -> tvm.IRModule:
        return map_functions(mod, lambda function, _mod: _differentiated(function))

    return module_pass("FirstOrderGradient", 0, change)


def LazyGradientInit() -> Any:
    """No-op: gradient zeros are constants that the build folds."""
    return module_pass("LazyGradientInit", 0, lambda mod: mod)


def _differentiated(function: relax.Function) -> relax.Function:
    if not isinstance(function.ret_ty, relax.TensorType):
        raise UnsupportedRelayOperatorError(
            f"gradient of a function that returns {function.ret_ty}: return one tensor, or call "
            "tvm.relax.transform.Gradient on the lowered module"
        )
    plain = lower(tvm.IRModule({"main": function.without_attr("global_symbol")}))["main"]
    result = nested(plain)
    total = infer_type(relax.op.sum(result))
    mod = tvm.IRModule({"main": function_of(plain.params, tuple_of([total, result]))})
    mod = relax.transform.ConvertToDataflow(min_size=1)(mod)
    try:
        adjoint = relax.transform.Gradient("main", target_index=0)(mod)["main_adjoint"]
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[-1]
        raise UnsupportedRelayOperatorError(
            f"gradient: Relax can't differentiate: {reason}"
        ) from error
    results, derivatives = nested(adjoint).fields
    made = function_of(adjoint.params, tuple_of([results.fields[1], derivatives]))
    return relax.transform.ConvertToDataflow(min_size=1)(tvm.IRModule({"main": made}))["main"]
