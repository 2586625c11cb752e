"""FakeQuantizationToInteger: compute between dequantize and quantize on integers.

Before: dequantize, float operators, quantize.  After: the operators' quantized forms.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from ...errors import RelayError
from .. import dialect
from ..nested_expressions import handle, operands, post_order, rewrite
from ..op import registry
from ..op.affine_type import AffineTypes, TensorAffineType, TupleAffineType
from ..op.quantization import Rule
from ..type_infer import infer_type
from .base import body_wise
from .build import dtype, is_op, op, script_attribute
from .simplify import without_division

logger = logging.getLogger("baton.relay")

_ATTRIBUTE = "FTVMFakeQuantizationToInteger"
_OPTIONAL_ATTRIBUTE = "FTVMOptionalFakeQuantizationToInteger"


def FakeQuantizationToInteger(
    hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Sequence[str] | None = None
) -> Any:
    """Convert operators between `qnn.dequantize` and `qnn.quantize` to integer operators.

    Scripts register integer forms of further operators with the attribute
    `FTVMFakeQuantizationToInteger`: a function of the call and of a map from expressions to affine
    types, which returns [new expression, its affine type].

    Parameters
    ----------
    hard_fail : bool
        Raise an error if a region cannot be converted. Otherwise the region is kept, and the
        reason is logged.
    use_qat : bool
        Also convert single operators whose operands are all dequantized, and dequantize their
        results.
    optional_qnn_ops : sequence of str, optional
        Operators that may be converted although their integer form loses accuracy: "nn.softmax",
        and those with the attribute `FTVMOptionalFakeQuantizationToInteger`.

    Division by constants is first converted to multiplication, as in `DivToMul`.

    Raises
    ------
    RelayError
        With `hard_fail`: a region cannot be converted.
    """
    optional = frozenset(map(str, optional_qnn_ops or ()))

    def change(body: relax.Expr) -> relax.Expr:
        made = rewrite(without_division(body), lambda _old, new: _region(new, hard_fail, optional))
        if use_qat:
            made = rewrite(made, lambda _old, new: _single(new, hard_fail, optional))
        return made

    return body_wise("FakeQuantizationToInteger", 0, change)


def _rule(name: str, optional: frozenset[str]) -> Rule | None:
    """Integer rule of an operator; a user-defined rule takes precedence."""
    form = registry.lookup(name).quantized if registry.is_available(name) else None
    known = form.rule if form is not None and (not form.optional or name in optional) else None
    asked = script_attribute(name, _OPTIONAL_ATTRIBUTE) if name in optional else None
    return script_attribute(name, _ATTRIBUTE) or asked or known


def _region(call: relax.Expr, hard_fail: bool, optional: frozenset[str]) -> relax.Expr:
    """Convert the region that ends in a quantize, if possible."""
    if not is_op(call, "qnn.quantize"):
        return call
    nodes = list(post_order(call, _since_dequantized))
    types = AffineTypes()
    for node in nodes:
        if is_op(node, "qnn.dequantize"):
            types[node] = _dequantized_type(node)
        elif not isinstance(
            node, (relax.Call, relax.Tuple, relax.TupleGetItem, tvm.ir.GenericConst)
        ):
            return call
    calls = [node for node in nodes if isinstance(node, relax.Call) and not node.same_as(call)]
    if not calls:
        return call
    types[call] = TensorAffineType(
        call.args[1], call.args[2], str(call.attrs["out_dtype"]), int(call.attrs["axis"])
    )
    unknown = [each for each in calls if _rule(_name(each), optional) is None]
    if unknown:
        return _kept(call, f"{_name(unknown[0])} has no form on integers", hard_fail)
    try:
        return _on_integers(nodes, types, types[call], optional)[0]
    except Exception as error:
        return _kept(call, str(error), hard_fail, error)


def _single(call: relax.Expr, hard_fail: bool, optional: frozenset[str]) -> relax.Expr:
    """Convert one operator whose operands are all dequantized."""
    name = _name(call)
    form = registry.lookup(name).quantized if name else None
    if form is None or not form.alone or _rule(name, optional) is None:
        return call
    nodes = list(post_order(call, _since_dequantized))
    types = AffineTypes()
    calls = []
    for node in nodes:
        if is_op(node, "qnn.dequantize"):
            types[node] = _dequantized_type(node)
            calls.append(node)
        elif isinstance(node, relax.Call):
            if not node.same_as(call):
                return _kept(call, "an operand is not dequantized", hard_fail)
        elif not isinstance(node, (relax.Tuple, relax.TupleGetItem, tvm.ir.GenericConst)):
            return call
    if not calls:
        return call
    try:
        made, affine = _on_integers(nodes, types, None, optional)
    except Exception as error:
        return _kept(call, str(error), hard_fail, error)
    if not isinstance(affine, TensorAffineType):
        return call
    return op("qnn.dequantize", made, *affine.numbers, axis=affine.axis)


def _since_dequantized(node: relax.Expr) -> list[relax.Expr]:
    """Operands in a traversal that stops at dequantizes; for a quantize, only its data."""
    if is_op(node, "qnn.dequantize"):
        return []
    return [node.args[0]] if is_op(node, "qnn.quantize") else operands(node)


def _dequantized_type(call: relax.Call) -> TensorAffineType:
    data, scale, zero_point = call.args
    return TensorAffineType(scale, zero_point, dtype(data), int(call.attrs["axis"]))


def _on_integers(
    nodes: Sequence[relax.Expr],
    types: AffineTypes,
    result: TensorAffineType | None,
    optional: frozenset[str],
) -> tuple[relax.Expr, Any]:
    """Convert nodes to integers; return the last one and its affine type."""
    made: dict[int, relax.Expr] = {}
    for node in nodes:
        if isinstance(node, tvm.ir.GenericConst):
            made[handle(node)] = node
            continue
        below = [made.get(handle(each), each) for each in operands(node)]
        if isinstance(node, relax.Tuple):
            new: relax.Expr = relax.Tuple(below)
            types[new] = TupleAffineType([types[each] for each in below])
        elif isinstance(node, relax.TupleGetItem):
            new = relax.TupleGetItem(below[0], node.index)
            types[new] = types[below[0]].types[int(node.index)]
        else:
            rule = _rule(_name(node), optional)
            if rule is None:
                raise RelayError(f"{_name(node)} has no form on integers")
            # Type inference on integers may fail; the rule determines the replacement.
            call = node if is_op(node, "qnn.dequantize") else _untyped(node, below)
            if result is not None and not is_op(node, "qnn.dequantize"):
                types[call] = result
            new, affine = rule(call, types)
            new = infer_type(new)
            types[new] = affine
        made[handle(node)] = new
    last = made[handle(nodes[-1])]
    return last, types[last]


def _untyped(node: relax.Call, args: list[relax.Expr]) -> relax.Call:
    return relax.Call(node.op, args, node.attrs, node.ty_args, node.span)


def _name(expr: relax.Expr) -> str:
    return dialect.relay_name(expr) if isinstance(expr, relax.Call) else ""


def _kept(
    call: relax.Call, reason: str, hard_fail: bool, error: Exception | None = None
) -> relax.Call:
    if hard_fail:
        raise RelayError(f"FakeQuantizationToInteger: {reason}") from error
    logger.info("FakeQuantizationToInteger leaves a region as it is: %s", reason)
    return call
