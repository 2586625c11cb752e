"""`relay.op.op`: operators by name, and what scripts register for them.

`relay.op.register_legalize` and its kin set an attribute of the operator, which the pass of that
name reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm.ir import _ffi_api

from ...errors import RelayError
from . import record
from .registry import get, names

__all__ = [
    "OpPattern",
    "get",
    "register",
    "register_alter_op_layout",
    "register_convert_op_layout",
    "register_external_compiler",
    "register_fake_quantization_to_integer",
    "register_gradient",
    "register_infer_correct_layout",
    "register_legalize",
    "register_mixed_precision_conversion",
    "register_optional_fake_quantization_to_integer",
    "register_pattern",
    "register_stateful",
]


class OpPattern:
    """How operators fuse: the values of the attribute `TOpPattern`."""

    ELEMWISE = record.ELEMENTWISE
    BROADCAST = record.BROADCAST
    INJECTIVE = record.INJECTIVE
    COMM_REDUCE = record.REDUCTION
    OUT_ELEMWISE_FUSABLE = record.FUSABLE
    TUPLE = record.TUPLE
    OPAQUE = record.OPAQUE


def register(op_name: str, describe: str = "") -> None:
    """Make a new operator, whose type relation and pattern are registered next.

    Raises
    ------
    RelayError
        There is an operator of that name.
    """
    if op_name in names() or op_name in tvm.ir.Op.list_op_names():
        raise RelayError(f"Operator {op_name} is registered before")
    _ffi_api.RegisterOp(op_name, describe)


def _set(op_name: str, attribute: str, value: Any, level: int) -> Any:
    if op_name in names():
        get(op_name)  # registers Relay's operator with TVM
    return tvm.ir.register_op_attr(op_name, attribute, value, level)


def _registrar(attribute: str, what: str) -> Callable[..., Any]:
    """A function that sets one attribute of an operator, or is a decorator that does."""

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
    """Say how an operator fuses: one of `OpPattern`."""
    return _set(op_name, "TOpPattern", pattern, level)


def register_stateful(op_name: str, stateful: bool, level: int = 10) -> Any:
    """Say whether an operator has a state, so that calls of it are not put together."""
    return _set(op_name, "TOpIsStateful", stateful, level)
