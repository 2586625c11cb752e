"""Evaluation of ONNX nodes whose inputs are constants, by ONNX's reference implementation."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

logger = logging.getLogger("baton.relay")

OLDEST_FORM = 7
"""The first operator set whose form the converters know; nodes of older ones are brought to it."""

LARGEST = 1 << 20
"""Elements of the largest operand or result that is computed while importing."""

_NAMES = """
Abs Add And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike
Ceil Clip Compress Concat ConstantOfShape Cos CumSum Div Equal Erf Exp Expand EyeLike Flatten
Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity IsInf IsNaN Less
LessOrEqual Log MatMul Max Mean MelWeightMatrix Min Mod Mul Neg NonZero Not OneHot Or Pad Pow
Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceMax ReduceMean ReduceMin
ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements ScatterND Sigmoid Sign Sin
Size Slice Softmax Split Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Trilu Unique Unsqueeze
Where Xor
"""
FOLDABLE = frozenset(_NAMES.split())
"""Deterministic operators of ONNX's own domain that shape and mask arithmetic is made of."""

ACCUMULATING = frozenset(["CumSum", "MatMul", "Mean", "Softmax", "Sum"])
"""Operators besides reductions that sum, which halves do in float32."""

_NAMES_OF_BROADCASTING = """
Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less
LessOrEqual Max Mean Min Mod Mul Or Pow Sub Sum Where Xor
"""
BROADCASTING = frozenset(_NAMES_OF_BROADCASTING.split())
"""Operators whose operands are broadcast to each other."""


def evaluate(
    node: onnx.NodeProto, opset: int, values: list[np.ndarray | None]
) -> list[np.ndarray] | None:
    """Compute a node whose operator is `FOLDABLE` from constants; None is an omitted input.

    Returns None when operands or result are large (such work belongs to the graph passes, which
    know what it is for), or when the reference implementation can't.
    """
    opset = max(opset, OLDEST_FORM)
    arrays = [value for value in values if value is not None]
    if sum(array.size for array in arrays) > LARGEST or _result_size(node, arrays) > LARGEST:
        return None
    if node.op_type in _OWN:
        return [_OWN[node.op_type](node, *values)]
    if node.op_type == "Softmax" and opset < 13:
        return None  # the reference implementation has today's axes for all operator sets,
    if node.op_type == "Unique" and not _attribute(node, "sorted", 1):
        return None  # and takes all axes for axis 0
    feeds = {name: value for name, value in zip(node.input, values) if value is not None and name}
    accumulates = node.op_type in ACCUMULATING or node.op_type.startswith("Reduce")
    if accumulates:
        feeds = {name: _widened(value) for name, value in feeds.items()}
    from onnx.reference import ReferenceEvaluator

    function = _alone(node, list(feeds), opset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            results = ReferenceEvaluator(function).run(None, feeds, attributes={})
        except Exception as error:
            # It lacks some forms of some operators; what is wrong with the node, if anything is,
            # its converter says better.
            logger.debug("ONNX's reference implementation of %s: %s", node.op_type, error)
            return None
    if accumulates:
        # numpy sums integers of 32 bits and fewer in 64.
        results = [np.asarray(result).astype(arrays[0].dtype) for result in results]
    return [np.asarray(result) for result in results]


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype("float32") if array.dtype == np.float16 else array


def _alone(node: onnx.NodeProto, inputs: list[str], opset: int) -> onnx.FunctionProto:
    """A node as a function: the reference evaluator takes the newest version of a bare one."""
    named = onnx.NodeProto()
    named.CopyFrom(node)
    named.output[:] = [f"result {i}" for i in range(len(node.output))]
    return helper.make_function(
        "", node.op_type, inputs, named.output, [named], [helper.make_opsetid("", opset)]
    )


def _result_size(node: onnx.NodeProto, arrays: list[np.ndarray]) -> int:
    """Elements of the result of the operators that make much out of little; 0 for others."""
    if node.op_type == "ConstantOfShape" and arrays:
        return math.prod(int(extent) for extent in arrays[0].ravel())
    if node.op_type == "Expand" and len(arrays) == 2:
        return broadcast_size(arrays[0].shape, [int(extent) for extent in arrays[1].ravel()])
    if node.op_type == "Tile" and len(arrays) == 2:
        return arrays[0].size * math.prod(int(repeat) for repeat in arrays[1].ravel())
    if node.op_type == "Range" and len(arrays) == 3:
        start, limit, delta = (float(array.reshape(())) for array in arrays)
        return max(0, math.ceil((limit - start) / delta)) if delta else 0
    if node.op_type == "OneHot" and len(arrays) == 3:
        return arrays[0].size * int(arrays[1].reshape(-1)[0])
    if node.op_type == "Pad" and len(arrays) > 1:
        pads = [int(pad) for pad in arrays[1].ravel()]
        half = len(pads) // 2
        if len(arrays) <= 3 and half == arrays[0].ndim:
            return math.prod(
                extent + pads[i] + pads[i + half] for i, extent in enumerate(arrays[0].shape)
            )
        whole = max(arrays[0].size, 1)  # an upper bound, whichever axes are padded
        return whole * math.prod(1 + max(pads[i] + pads[i + half], 0) for i in range(half))
    if node.op_type in ("Gather", "GatherND", "MatMul") and len(arrays) == 2:
        if node.op_type == "Gather" and arrays[0].ndim:
            axis = _attribute(node, "axis", 0)
            if -arrays[0].ndim <= axis < arrays[0].ndim and arrays[0].shape[axis]:
                return arrays[0].size // arrays[0].shape[axis] * arrays[1].size
        return arrays[0].size * arrays[1].size
    if node.op_type == "MelWeightMatrix" and len(arrays) == 5:
        bins, length = (int(array.reshape(-1)[0]) for array in arrays[:2])
        return max(bins, 0) * (max(length, 0) // 2 + 1)
    if node.op_type in BROADCASTING and len(arrays) > 1:
        return broadcast_size(*(array.shape for array in arrays))
    return 0


def broadcast_size(*shapes: Sequence[int]) -> int:
    """Elements of tensors of these shapes broadcast to each other, if they can be."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return math.prod(max(extents) for extents in zip(*padded))


def _attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    found = (entry for entry in node.attribute if entry.name == name)
    return next(map(helper.get_attribute_value, found), default)


def _gather_elements(node: onnx.NodeProto, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
    # The reference implementation is limited to 64 slices along the axis.
    axis = _attribute(node, "axis", 0)
    coordinates: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    coordinates[axis] = indices
    return data[tuple(coordinates)]


def _slice(
    node: onnx.NodeProto,
    data: np.ndarray,
    starts: np.ndarray | None = None,
    ends: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
) -> np.ndarray:
    # Backwards from a start in front of the first element: ONNX has that element, Python nothing.
    starts = np.ravel(_attribute(node, "starts") if starts is None else starts)
    ends = np.ravel(_attribute(node, "ends") if ends is None else ends)
    axes = _attribute(node, "axes", np.arange(starts.size)) if axes is None else axes
    steps = np.ones(starts.size, "int64") if steps is None else steps
    places = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        places[axis] = slice(max(start, -data.shape[axis]), end, step)
    return data[tuple(places)]


def _unsqueeze(
    node: onnx.NodeProto, data: np.ndarray, axes: np.ndarray | None = None
) -> np.ndarray:
    # The reference implementation of some versions inserts one axis after the other.
    return np.expand_dims(data, tuple(_attribute(node, "axes") if axes is None else np.ravel(axes)))


_OWN: dict[str, Callable[..., np.ndarray]] = {
    "GatherElements": _gather_elements,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
}
"""Operators that ONNX's reference implementation has wrong or not whole."""
