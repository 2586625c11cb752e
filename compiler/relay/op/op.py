"""`relay.op.op`: operators by name; `register_legalize` and others set attributes for passes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tvm
from tvm.ir import _ffi_api

from ...errors import RelayError
from ...support.noop_api import register_injective_schedule as register_injective_schedule
from ...support.noop_api import register_schedule as register_schedule
from ...support.noop_api import register_shape_func as register_shape_func
from . import op_def
from .registry import get, names
from .te_op import computed_by


class OpPattern:
    """Fusion patterns: values of the attribute `TOpPattern`."""

    ELEMWISE = op_def.ELEMENTWISE
    BROADCAST = op_def.BROADCAST
    INJECTIVE = op_def.INJECTIVE
    COMM_REDUCE = op_def.REDUCTION
    OUT_ELEMWISE_FUSABLE = op_def.FUSABLE
    TUPLE = op_def.TUPLE
    OPAQUE = op_def.OPAQUE


def register(op_name: str, describe: str = "") -> None:
    """Create an operator; its type relation and pattern are registered separately.

    Raises
    ------
    RelayError
        An operator of this name already exists.
    """
    if op_name in names() or op_name in tvm.ir.Op.list_op_names():
        raise RelayError(f"Operator {op_name} is registered before")
    _ffi_api.RegisterOp(op_name, describe)


def _set(op_name: str, attribute: str, value: Any, level: int) -> Any:
    if op_name in names():
        get(op_name)  # registers Relay's operator with TVM
    return tvm.ir.register_op_attr(op_name, attribute, value, level)


def _registrar(attribute: str, what: str) -> Callable[..., Any]:
    """Create a function that sets one operator attribute, directly or as a decorator."""

    def register_attribute(op_name: str, function: Any = None, level: int = 10) -> Any:
        return _set(op_name, attribute, function, level)

    register_attribute.__doc__ = f"Register {what} of an operator; a decorator without `function`."
    return register_attribute


register_alter_op_layout = _registrar("FTVMAlterOpLayout", "the form with a better layout")
register_convert_op_layout = _registrar("FTVMConvertOpLayout", "the form with a wanted layout")
register_external_compiler = _registrar("FTVMExternalCompiler", "the external compiler")
register_fake_quantization_to_integer = _registrar(
    "FTVMFakeQuantizationToInteger", "the form on integers"
)
register_gradient = _registrar("FPrimalGradient", "the gradient")
register_infer_correct_layout = _registrar("FInferCorrectLayout", "the layouts of operands")
register_legalize = _registrar("FTVMLegalize", "the form that a target can compile")
register_mixed_precision_conversion = _registrar(
    "FTVMMixedPrecisionConversionType", "the conversion of precision"
)
register_optional_fake_quantization_to_integer = _registrar(
    "FTVMOptionalFakeQuantizationToInteger", "the form on integers where that is allowed"
)


def register_pattern(op_name: str, pattern: int, level: int = 10) -> Any:
    """Register the fusion pattern of an operator: one of `OpPattern`."""
    return _set(op_name, "TOpPattern", pattern, level)


def register_stateful(op_name: str, stateful: bool, level: int = 10) -> Any:
    """Register whether an operator is stateful, so that equal calls are not merged."""
    return _set(op_name, "TOpIsStateful", stateful, level)


def register_compute(
    op_name: str, compute: Callable[..., Any] | None = None, level: int = 10
) -> Any:
    """Register the compute of a user-defined operator; a decorator if `compute` is omitted.

    Parameters
    ----------
    op_name : str
        Operator created by `register`.
    compute : callable
        Function of the attributes, the operands (TE tensors) and the output type, to a TE tensor
        or a list of them. The output type is None, since it is inferred from the compute.
    level : int
        Ignored: the last registration is used.

    Raises
    ------
    RelayError
        The operator is not user-defined.
    """
    del level
    if compute is None:
        return lambda function: register_compute(op_name, function)
    given = compute

    @functools.wraps(given)  # its module decides what is cached on disk
    def computed(*operands: Any, **attrs: Any) -> Any:
        result = given(tvm.ir.make_node("ir.DictAttrs", **attrs), list(operands), None)
        alone = isinstance(result, (list, tuple, tvm.ir.Array)) and len(result) == 1
        return result[0] if alone else result

    _require_own(op_name, "compute")
    computed_by(op_name, computed)
    return compute


class OpStrategy:
    """Implementations of a user-defined operator; the highest level is used."""

    def __init__(self) -> None:
        self.implementations: list[tuple[int, Callable[..., Any]]] = []

    def add_implementation(
        self, compute: Callable[..., Any], schedule: Any, name: str = "default", plevel: int = 10
    ) -> None:
        """Add a compute; `schedule` is ignored, since the build schedules all kernels itself."""
        del schedule, name
        self.implementations.append((plevel, compute))


def register_strategy(
    op_name: str, strategy: Callable[..., Any] | None = None, level: int = 10
) -> Any:
    """Register the strategy of a user-defined operator; a decorator if `strategy` is omitted.

    Parameters
    ----------
    strategy : callable
        Function of the attributes, the operands, the output type (None) and the active target, to
        an `OpStrategy`.
    """
    if strategy is None:
        return lambda function: register_strategy(op_name, function, level)
    given = strategy

    @functools.wraps(given)
    def compute(attrs: Any, inputs: Any, out_type: Any) -> Any:
        made = given(attrs, inputs, out_type, tvm.target.Target.current(allow_none=True))
        if not made.implementations:
            raise RelayError(f"the strategy of {op_name} has no implementation")
        return max(made.implementations, key=lambda each: each[0])[1](attrs, inputs, out_type)

    register_compute(op_name, compute, level)
    return strategy


def _require_own(op_name: str, what: str) -> None:
    if op_name in names():
        raise RelayError(
            f"{op_name} is an operator of Relay's, whose {what} is that of the build; "
            "relay.op.register makes one of another name"
        )
