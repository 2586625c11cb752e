"""Activations, softmax and dropout."""

from __future__ import annotations

import math

from tvm import relax, topi

from ...expr import TupleGetItem
from .. import layout_rules, quantization
from ..op_def import BROADCAST, ELEMENTWISE, FOLLOW, FUSABLE, NEVER
from ..raising import Definitions, from_relax, renamed, same_name, typed_call
from ..raising import number as constant
from ..registry import builder, operator
from ..shapes import assign_type, axis_of, dtype, extents, is_float, number, rank
from ..te_op import kernel
from ..typed_relax import op


@operator(
    "nn.relu",
    how="direct",
    pattern=ELEMENTWISE,
    precision=FOLLOW,
    layout=layout_rules.elementwise,
    quantized=quantization.relu,
)
def relu(data: relax.Expr) -> relax.Expr:
    """max(x, 0)."""
    return op.nn.relu(data)


@operator(
    "nn.leaky_relu",
    defaults={"alpha": 0.25},
    how="direct",
    pattern=ELEMENTWISE,
    precision=FOLLOW,
    layout=layout_rules.elementwise,
    quantized=quantization.function("qnn.leaky_relu", has_attributes=True),
)
def leaky_relu(data: relax.Expr, alpha: float = 0.01) -> relax.Expr:
    """x if x > 0, else alpha * x; for integers, alpha is truncated."""
    if is_float(dtype(data)):
        return op.nn.leakyrelu(data, float(alpha))
    zero, factor = number(0, dtype(data)), number(int(alpha), dtype(data))
    return op.where(op.greater(data, zero), data, op.multiply(data, factor))


@operator(
    "nn.prelu", 2, how="direct", pattern=BROADCAST, precision=FOLLOW, layout=layout_rules.prelu
)
def prelu(data: relax.Expr, alpha: relax.Expr, axis: int = 1) -> relax.Expr:
    """x if x > 0, else alpha[channel] * x."""
    where = axis_of(axis, rank(data))
    assign_type(alpha, [extents(data)[where]], dtype(data))
    return op.nn.prelu(data, alpha, where)


@operator(
    "nn.softmax",
    how="direct",
    pattern=FUSABLE,
    precision=NEVER,
    quantized=quantization.function("qnn.softmax", optional=True, has_attributes=True),
    fast="nn.fast_softmax",
)
def softmax(data: relax.Expr, axis: int = -1) -> relax.Expr:
    """Softmax along an axis."""
    return op.nn.softmax(data, axis_of(axis, rank(data)))


@operator("nn.log_softmax", how="direct", pattern=FUSABLE)
def log_softmax(data: relax.Expr, axis: int = -1) -> relax.Expr:
    """Logarithm of softmax."""
    return op.nn.log_softmax(data, axis_of(axis, rank(data)))


_fast_softmax = kernel("nn.fast_softmax", lambda data, axis: topi.nn.fast_softmax(data, axis))


@operator("nn.fast_softmax", how="TOPI", pattern=FUSABLE)
def fast_softmax(data: relax.Expr, axis: int = -1) -> relax.Expr:
    """Softmax with an approximate exponential."""
    return _fast_softmax(data, axis=axis_of(axis, rank(data)))


@operator("nn.dropout", precision=FOLLOW, layout=layout_rules.elementwise)
def _dropout_pair(data: relax.Expr, rate: float = 0.5) -> relax.Expr:
    """The data, and the dropout mask of inference: all ones."""
    return relax.Tuple([data, op.ones(extents(data), dtype(data))])


@builder("nn.dropout")
def dropout(data: relax.Expr, rate: float = 0.5) -> relax.Expr:
    """Identity: nothing is dropped in inference."""
    return TupleGetItem(_dropout_pair(data, rate), 0)


@builder("nn.dropout_raw")
def dropout_raw(data: relax.Expr, rate: float = 0.5) -> relax.Expr:
    """Data and mask as a tuple."""
    return _dropout_pair(data, rate)


same_name("nn.relu", "nn.prelu", "nn.softmax", "nn.log_softmax")
renamed("nn.leakyrelu", "nn.leaky_relu")


@from_relax("nn.gelu")
def _gelu_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    """Convert GELU to Relay: x (erf(x / sqrt(2)) + 1) / 2, in the operator order of exporters."""
    (data,), ty = call.args, call.ty
    inner = typed_call("divide", [data, constant(math.sqrt(2), data)], ty)
    curve = typed_call("add", [typed_call("erf", [inner], ty), constant(1, data)], ty)
    return typed_call(
        "multiply", [typed_call("multiply", [data, curve], ty), constant(0.5, data)], ty
    )


@from_relax("nn.gelu_tanh")
def _gelu_tanh_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    """Convert tanh GELU to Relay: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    (data,), ty = call.args, call.ty
    cube = typed_call("multiply", [typed_call("multiply", [data, data], ty), data], ty)
    inner = typed_call(
        "add", [data, typed_call("multiply", [cube, constant(0.044715, data)], ty)], ty
    )
    scaled = typed_call("multiply", [inner, constant(math.sqrt(2 / math.pi), data)], ty)
    curve = typed_call("add", [typed_call("tanh", [scaled], ty), constant(1, data)], ty)
    return typed_call(
        "multiply", [typed_call("multiply", [data, curve], ty), constant(0.5, data)], ty
    )


@from_relax("nn.silu")
def _silu_from_relax(call: relax.Call, _definition: Definitions) -> relax.Expr | None:
    (data,) = call.args
    return typed_call("multiply", [data, typed_call("sigmoid", [data], call.ty)], call.ty)
