"""What comparisons leave out, as data: rounding of operators, undefined results, others' faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx
import onnx.defs
import onnx.helper


def names(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


EXACT = frozenset(
    names(
        "Abs And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast "
        "CastLike Ceil CenterCropPad Clip Compress Concat ConcatFromSequence Constant "
        "ConstantOfShape DepthToSpace Dropout Equal Expand EyeLike Flatten Floor Gather "
        "GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax Identity IsInf "
        "IsNaN Less LessOrEqual Max MaxPool MaxUnpool Min Neg NonMaxSuppression NonZero Not "
        "OneHot Optional OptionalGetElement OptionalHasElement Or Pad ReduceMax ReduceMin "
        "Relu Reshape ReverseSequence Round SequenceAt SequenceConstruct SequenceEmpty "
        "SequenceErase SequenceInsert SequenceLength Shape Sign Size Slice SpaceToDepth Split "
        "SplitToSequence Squeeze ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze "
        "Where Xor MaxRoiPool"
    )
)
"""Operators whose results no implementation rounds."""

ARITHMETIC = frozenset(names("Add Div Mul Neg Reciprocal Sqrt Sub Sum Mean"))
"""Operators that round once or a few times."""

ELEMENTWISE = frozenset(
    names(
        "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp FastGelu Gelu BiasGelu "
        "HardSigmoid HardSwish LeakyRelu Log Mish Mod PRelu Pow QuickGelu Selu "
        "Shrink Sigmoid Sin Sinh Softplus Softsign Tan Tanh"
    )
)
"""Functions of single elements: they round results, not what they read."""


PLACES = frozenset(names("AffineGrid GridSample Resize RoiAlign Upsample"))
"""Operators that compute places in an image, in float32, and what lies between its elements."""

WRONG_REFERENCE = ("AveragePool", "LpPool")
"""Operators of which the reference evaluator passes over NaN."""

VALUES_UNREAD = frozenset(
    names(
        "If EyeLike OptionalHasElement SequenceErase SequenceLength Shape Size Slice Split "
        "Dropout SequenceAt CenterCropPad Pad Gather GatherElements GatherND Compress "
        "RotaryEmbedding"
    )
)
"""Operators that may leave values unread, so that nobody need compute them, and one whose own
definition takes positions from the end, which onnxruntime refuses."""


def rounding(op: str) -> tuple[float, float, float]:
    """Relative error of operands and of results, and an absolute one of results, in epsilons.

    Operators that accumulate are right for slightly different operands.
    """
    if op in EXACT:
        return 0, 0, 0
    if op in ARITHMETIC:
        return 0, 1, 0
    if op in ELEMENTWISE:
        return 0, 8, 2
    if op in PLACES:
        return 0, 128, 128
    return 2, 4, 1


def parameters(node: onnx.NodeProto) -> list[str]:
    """Operands that are numbers but no data: scales of images and places in them."""
    return list(node.input[1:]) if node.op_type in ("Resize", "Upsample", "GridSample") else []


def coarsest(op: str, dtype: np.dtype) -> float:
    """The epsilon of an operator's rounding: its attributes are float32 in float64 nodes too."""
    epsilon = float(np.finfo(dtype).eps)
    with_numbers = _has_float_attributes(op) or op.endswith("Window") or op == "HardSwish"
    return max(epsilon, float(np.finfo("float32").eps) / 8) if with_numbers else epsilon


@cache
def _has_float_attributes(op: str) -> bool:
    if not onnx.defs.has(op):
        return True
    attributes = onnx.defs.get_schema(op).attributes.values()
    return any(entry.type == onnx.defs.OpSchema.AttrType.FLOAT for entry in attributes)


Operands = list[np.ndarray]
Test = Callable[[onnx.NodeProto, Operands], bool]


def _attribute(node: onnx.NodeProto, name: str, default: object = None) -> object:
    for entry in node.attribute:
        if entry.name == name:
            return onnx.helper.get_attribute_value(entry)
    return default


def _float_to_integer(node: onnx.NodeProto, operands: Operands) -> bool:
    x = operands[0]
    if node.op_type == "CastLike":
        to = operands[1].dtype
    else:
        to = onnx.helper.tensor_dtype_to_np_dtype(int(str(_attribute(node, "to"))))
    if x.dtype.kind != "f" or to.kind not in "iu":
        return False
    info = np.iinfo(to)
    wide = x.astype("float64")
    return bool((~((wide > float(info.min) - 1) & (wide < float(info.max)))).any())


def _has_nan(node: onnx.NodeProto, operands: Operands) -> bool:
    return any(x.dtype.kind == "f" and bool(np.isnan(x).any()) for x in operands)


def _extreme_of_nan(node: onnx.NodeProto, operands: Operands) -> bool:
    return _text(node, "reduction", "none") in ("max", "min") and _has_nan(node, operands)


def _not_finite(node: onnx.NodeProto, operands: Operands) -> bool:
    return any(x.dtype.kind == "f" and not bool(np.isfinite(x).all()) for x in operands)


def _text(node: onnx.NodeProto, name: str, default: str) -> str:
    value = _attribute(node, name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _interpolates_not_finite(node: onnx.NodeProto, operands: Operands) -> bool:
    return _text(node, "mode", "nearest") != "nearest" and _not_finite(node, operands[:1])


def _nearest_not_finite(node: onnx.NodeProto, operands: Operands) -> bool:
    return str(operands[0].dtype) != "float32" and _not_finite(node, operands[:1])


def _nearest_large(node: onnx.NodeProto, operands: Operands) -> bool:
    return _text(node, "mode", "nearest") == "nearest" and _large_integers(node, operands[:1])


def _places_of_less_precision(node: onnx.NodeProto, operands: Operands) -> bool:
    image, grid = operands[:2]
    return image.dtype.itemsize > grid.dtype.itemsize


def _doubles_of_no_image(node: onnx.NodeProto, operands: Operands) -> bool:
    return operands[0].dtype == np.float64 and operands[0].ndim != 4


def _interpolates_integers(node: onnx.NodeProto, operands: Operands) -> bool:
    return _text(node, "mode", "nearest") != "nearest" and operands[0].dtype.kind in "iu"


def _same_and_dilated(node: onnx.NodeProto, operands: Operands) -> bool:
    return _text(node, "auto_pad", "NOTSET").startswith("SAME") and _dilated(node)


def _same_of_others(node: onnx.NodeProto, operands: Operands) -> bool:
    """Automatic pads of what onnxruntime does not have: all but float32."""
    automatic = _text(node, "auto_pad", "NOTSET").startswith("SAME")
    return automatic and str(operands[0].dtype) != "float32"


def _meets_zeros(node: onnx.NodeProto, operands: Operands) -> bool:
    """Weights meet the zeros between pixels; pixels those between weights, and those behind the
    kernel where it is not a multiple of the stride."""
    data, weights = operands[:2]
    kernel = weights.shape[2:]
    strides = _attribute(node, "strides", [1] * len(kernel))
    parts = any(extent % step for extent, step in zip(kernel, strides))  # type: ignore[call-overload]
    return _not_finite(node, [weights, data] if parts or _dilated(node) else [weights])


def _integers(node: onnx.NodeProto, operands: Operands) -> bool:
    return operands[0].dtype.kind in "iu"


def _integers_not_positive(node: onnx.NodeProto, operands: Operands) -> bool:
    """Integers whose sum may be 0 or less; without any it is 0."""
    x = operands[0]
    return _integers(node, operands) and not (x.size and x.min() > 0)


def _shrinks_out(node: onnx.NodeProto, operands: Operands) -> bool:
    x = operands[0]
    if x.dtype.kind not in "iu":
        return False
    bias = float(str(_attribute(node, "bias", 0.0)))
    wide, info = x.astype("float64"), np.iinfo(x.dtype)
    low, high = max(float(info.min), -(2.0**24)), min(float(info.max), 2.0**24)
    return bool(((wide - abs(bias) < low) | (wide + abs(bias) > high)).any())


def _shifted_out(node: onnx.NodeProto, operands: Operands) -> bool:
    amount = operands[1]
    return bool((amount >= amount.dtype.itemsize * 8).any())


def _least_by_minus_one(node: onnx.NodeProto, operands: Operands) -> bool:
    x, y = operands
    if x.dtype.kind != "i":
        return False
    return bool((x == np.iinfo(x.dtype).min).any() and (y == -1).any())


def _integer_power(node: onnx.NodeProto, operands: Operands) -> bool:
    if operands[0].dtype.kind not in "iu":
        return False
    with np.errstate(all="ignore"):
        power = np.power(operands[0].astype("float64"), operands[1].astype("float64"))
    limit = min(2.0**53, float(np.iinfo(operands[0].dtype).max))
    return not bool((np.abs(power) < limit).all())


def _a_large_integer(node: onnx.NodeProto, operands: Operands) -> bool:
    return any(_large_integers(node, [x]) for x in operands)


def _doubles_with_nan(node: onnx.NodeProto, operands: Operands) -> bool:
    return _wider_than_float32(node, operands) and _has_nan(node, operands)


def _rounds_one_hot(node: onnx.NodeProto, operands: Operands) -> bool:
    off, on = operands[2].reshape(-1)
    return _not_finite(node, operands) or bool(off + (on - off) != on)


def _wider_than_float32(node: onnx.NodeProto, operands: Operands) -> bool:
    return str(operands[0].dtype) not in ("float16", "float32")


def _dilated(node: onnx.NodeProto) -> bool:
    dilations = _attribute(node, "dilations", [])
    return any(step != 1 for step in dilations)  # type: ignore[attr-defined]


def _dilated_with_zeros(node: onnx.NodeProto, operands: Operands) -> bool:
    alone = str(operands[0].dtype) != "float32"
    return alone and _dilated(node) and _not_finite(node, operands)


def _largest_quotient(operands: Operands) -> float:
    """The largest number that is quantized; NaN where a scale of 0 or what is not finite is."""
    x, scale = (each.astype("float64") for each in operands[:2])
    with np.errstate(all="ignore"):
        return float(np.abs(x).max(initial=0) / np.abs(scale).min(initial=np.inf))


def _quantizes_not_finite(node: onnx.NodeProto, operands: Operands) -> bool:
    return not np.isfinite(_largest_quotient(operands))


def _has_no_range(node: onnx.NodeProto, operands: Operands) -> bool:
    largest = float(np.abs(operands[0]).max(initial=0))
    return not np.isfinite(largest) or 0 < largest < 256 * np.finfo("float32").tiny


def _quantizes_large(node: onnx.NodeProto, operands: Operands) -> bool:
    return _largest_quotient(operands) > 2**31 - 2**16


def _batch_first(node: onnx.NodeProto, operands: Operands) -> bool:
    return _attribute(node, "layout", 0) == 1


def _limits_not_finite(node: onnx.NodeProto, operands: Operands) -> bool:
    limits = _attribute(node, "clip") is not None or _attribute(node, "activations") is not None
    return (limits or node.op_type == "LSTM") and _not_finite(node, operands)


def _attends_not_finite(node: onnx.NodeProto, operands: Operands) -> bool:
    """Values that are not finite: ONNX's third operand; the bias too, or what they are made of."""
    values = {"": operands[2:3], "com.microsoft": operands[2:4]}[node.domain]
    made_here = node.domain and node.op_type == "Attention"
    return _not_finite(node, operands if made_here else values)


def _cancels(node: onnx.NodeProto, operands: Operands) -> bool:
    """Sums of products that are less than a sixteenth of what is added up, not quantized again."""
    if len(node.input) > 8 and node.input[8]:
        return False
    given = dict(zip((i for i, name in enumerate(node.input) if name), operands))
    factors = []
    for place, zero, name in _FACTORS[node.op_type]:
        matrix = given[place].astype("float64")
        matrix = matrix.T if _attribute(node, name, 0) else matrix
        factors.append(matrix - given.get(zero, np.zeros(())).astype("float64"))
    total = factors[0] @ factors[1] + (given.get(6, 0) if node.op_type == "QGemm" else 0)
    return bool((16 * np.abs(total) < np.abs(factors[0]) @ np.abs(factors[1])).any())


_FACTORS = {
    "DynamicQuantizeMatMul": ((0, -1, ""), (1, 3, "")),  # the first one is quantized within
    "MatMulIntegerToFloat": ((0, 4, ""), (1, 5, "")),
    "QGemm": ((0, 2, "transA"), (3, 5, "transB")),
}
"""The operands of products, their zero points, and what transposes them."""


def _nan_of_others(node: onnx.NodeProto, operands: Operands) -> bool:
    """NaN in what onnxruntime does not have: all but float32."""
    return str(operands[0].dtype) != "float32" and _has_nan(node, operands)


def _columns_out_of_order(node: onnx.NodeProto, operands: Operands) -> bool:
    """Parts along an axis, in the order they come in, of what onnxruntime does not have."""
    unordered = not _attribute(node, "sorted", 1) and _attribute(node, "axis", None) is not None
    return unordered and str(operands[0].dtype) not in ("float32", "float64", "int64", "int8")


def _stated_output_of_others(node: onnx.NodeProto, operands: Operands) -> bool:
    """An `output_shape` of what onnxruntime does not have: all but float32."""
    stated = _attribute(node, "output_shape", None) is not None
    return stated and str(operands[0].dtype) != "float32"


def _same_and_sparse(node: onnx.NodeProto, operands: Operands) -> bool:
    """A kernel that does not reach the next element, in what onnxruntime does not have."""
    data, weights = operands[:2]
    kernel = weights.shape[2:]
    strides, dilations = (
        _attribute(node, name, [1] * len(kernel)) for name in ("strides", "dilations")
    )
    sparse = any(
        (size - 1) * far + 1 < step
        for size, far, step in zip(kernel, dilations, strides)  # type: ignore[call-overload]
    )
    same = _text(node, "auto_pad", "NOTSET").startswith("SAME")
    return same and sparse and str(data.dtype) != "float32"


def _close_points(node: onnx.NodeProto, operands: Operands) -> bool:
    a, b = (each.astype("float64") for each in operands)
    with np.errstate(all="ignore"):
        apart = np.linalg.norm(a[:, None] - b[None], axis=-1)
        lengths = np.linalg.norm(a, axis=-1)[:, None] + np.linalg.norm(b, axis=-1)[None]
        return bool((16 * apart < lengths).any())


def _infinite_cell(node: onnx.NodeProto, operands: Operands) -> bool:
    given = dict(zip((i for i, name in enumerate(node.input) if name), operands))
    return 6 in given and bool(np.isinf(given[6]).any())


def _not_finite_or_large(node: onnx.NodeProto, operands: Operands) -> bool:
    largest = np.abs(operands[0].astype("float64")).max(initial=0)
    return bool(not largest < 16)


def _equal_maxima_by_columns(node: onnx.NodeProto, operands: Operands) -> bool:
    """Equal elements, of which an index that counts along columns names one."""
    x = operands[0]
    return _attribute(node, "storage_order", 0) == 1 and len(np.unique(x)) < x.size


def _is_at_threshold(node: onnx.NodeProto, operands: Operands) -> bool:
    """Elements that are the threshold as their type has it, which ONNX's definition compares."""
    threshold = np.asarray(_attribute(node, "alpha", 1.0), operands[0].dtype)
    return str(operands[0].dtype) != "float32" and bool((operands[0] == threshold).any())


def _fewer_images_than_channels(node: onnx.NodeProto, operands: Operands) -> bool:
    shape = operands[0].shape
    return str(operands[0].dtype) != "float32" and shape[0] < shape[1]


def _large_softplus(node: onnx.NodeProto, operands: Operands) -> bool:
    activations: list[bytes] = _attribute(node, "activations", [])  # type: ignore[assignment]
    return b"Softplus" in activations and any((np.abs(x) > 20).any() for x in operands)


def _large_integers(node: onnx.NodeProto, operands: Operands) -> bool:
    x = operands[0]
    return x.dtype.kind in "iu" and bool((np.abs(x.astype("float64")) > 2**10).any())


def _vanishes_beside_infinity(node: onnx.NodeProto, operands: Operands) -> bool:
    """Products of some elements may be 0, and others are infinite."""
    x = operands[0]
    if x.dtype.kind != "f" or not np.isinf(x).any():
        return False
    small = np.abs(x[(np.abs(x) < 1) & (x != 0)].astype("float64"))
    return bool(np.log2(small).sum() < np.log2(np.finfo(x.dtype).tiny))


def overflows(node: onnx.NodeProto, operands: Operands) -> bool:
    """Whether sums and squares inside of an operator may be larger than the dtype's numbers."""
    if rounding(node.op_type)[0] == 0 and node.op_type not in PLACES:
        return False
    for x in operands:
        if x.dtype.kind == "f" and x.size:
            finite = np.where(np.isfinite(x), np.abs(x.astype("float64")), 0)
            if finite.max() > float(np.finfo(x.dtype).max) ** 0.5 / 64:
                return True
    return False


@dataclass(frozen=True)
class Rule:
    """When results of some operators are not compared, and why.

    Attributes
    ----------
    operators : tuple of str
    applies : callable
        Of a node and its operands.
    reason : str
    """

    operators: Sequence[str]
    applies: Test
    reason: str


UNDEFINED = (
    Rule(names("BitShift"), _shifted_out, "a shift by the width or more"),
    Rule(names("Cast CastLike"), _float_to_integer, "a float that the integer type does not hold"),
    Rule(
        names("Shrink"),
        _shrinks_out,
        "an integer that, with the bias, a float or its type does not hold",
    ),
    Rule(names("Div Mod"), _least_by_minus_one, "the least integer divided by -1"),
    Rule(
        names("ConvTranspose"),
        _meets_zeros,
        "what is not finite times the zeros of a stride or dilation",
    ),
    Rule(
        names("DynamicQuantizeLinear DynamicQuantizeMatMul"),
        _has_no_range,
        "a range that is not finite, or too small to divide",
    ),
    Rule(names("QuantizeLinear"), _quantizes_not_finite, "values to quantize that are not finite"),
    Rule(names("Pow"), _integer_power, "an integer power that overflows"),
    Rule(names("Hardmax"), _has_nan, "the largest element beside NaN"),
    Rule(
        names("DynamicQuantizeMatMul MatMulIntegerToFloat QGemm"),
        _cancels,
        "sums that cancel, of integers or of floats",
    ),
    Rule(names("QGemm QLinearConv"), _a_large_integer, "sums of integers that overflow"),
    Rule(
        names("Einsum ReduceL2 ReduceLogSum ReduceMean ReduceSumSquare"),
        _large_integers,
        "sums of integers that overflow",
    ),
    Rule(
        names("ReduceProd"),
        _vanishes_beside_infinity,
        "products that are 0 or not, depending on their order, times infinity",
    ),
    Rule(names("ReduceLogSum"), _integers_not_positive, "the logarithm of 0 or less as an integer"),
    Rule(names("ReduceLogSumExp"), _integers, "sums of integers that overflow"),
    Rule(names("GridSample"), _not_finite, "places that are not finite"),
    Rule(names("RoiAlign"), _not_finite, "whether neighbors with a weight of 0 count"),
    Rule(
        names("Attention MultiHeadAttention"),
        _attends_not_finite,
        "whether weights that are denormal are 0, by which what is not finite is NaN",
    ),
    Rule(
        names("Resize Upsample"),
        _interpolates_not_finite,
        "which neighbors with a weight of 0 count",
    ),
    Rule(names("Resize Upsample"), _interpolates_integers, "how integers between are rounded"),
    Rule(names("Unique"), _has_nan, "the order and the equality of NaN"),
    Rule(names("MaxPool"), _equal_maxima_by_columns, "which of the largest elements comes first"),
)
"""When a result is not defined, and why. What depends on it is not compared."""

FAULTS = (
    Rule(names("Gelu"), _wider_than_float32, "its constants are of float32's precision"),
    Rule(names("Gemm"), _a_large_integer, "integers go through floats"),
    Rule(
        names("GRU LSTM RNN"),
        _batch_first,
        "no layout=1; the reference evaluator ignores direction and input_forget",
    ),
    Rule(names("GRU LSTM RNN"), _limits_not_finite, "NaN is lost in clips and activations"),
    Rule(names("GRU LSTM RNN"), _large_softplus, "log(1 + exp(x)) overflows"),
    Rule(
        names("LSTM"),
        _infinite_cell,
        "a gate of -18 or less is 0, by which it is NaN; the reference multiplies peepholes by it",
    ),
    Rule(
        names("ConvTranspose"),
        _same_and_sparse,
        "the reference evaluator, which stands in, goes on with zeros, unlike ONNX's own shapes",
    ),
    Rule(
        names("ConvTranspose"),
        _stated_output_of_others,
        "the reference evaluator, which stands in, crops elsewhere than ONNX's formula says",
    ),
    Rule(
        names("LpPool"),
        _nan_of_others,
        "the reference evaluator, which stands in, passes over NaN, unlike onnxruntime's own",
    ),
    Rule(
        names("Unique"),
        _columns_out_of_order,
        "the reference evaluator, which stands in, puts parts that are not sorted along axis 0",
    ),
    Rule(
        names("ThresholdedRelu"),
        _is_at_threshold,
        "the reference evaluator, which stands in, compares with a threshold of another type",
    ),
    Rule(names("CDist"), _not_finite, "squares that are not finite are subtracted"),
    Rule(names("CDist"), _close_points, "squares are subtracted that cancel each other"),
    Rule(names("Conv"), _dilated_with_zeros, "the reference puts zeros into dilated kernels"),
    Rule(names("Erf"), _wider_than_float32, "the error function is of float32's precision"),
    Rule(
        names("LRN"),
        _not_finite_or_large,
        "what is not finite, or large, stays in the sums of the windows behind it",
    ),
    Rule(
        names("LRN"),
        _fewer_images_than_channels,
        "the reference evaluator, which stands in, normalizes as many channels as there are images",
    ),
    Rule(
        names("GlobalMaxPool"),
        _doubles_of_no_image,
        "the reference evaluator, which stands in, takes the largest along other axes",
    ),
    Rule(names("LogSoftmax Softmax"), _doubles_with_nan, "sums of float64 leave NaN out"),
    Rule(names("MaxRoiPool"), _has_nan, "NaN is dropped"),
    Rule(
        names("ScatterElements ScatterND"),
        _extreme_of_nan,
        "whether a NaN stays depends on the order of the updates",
    ),
    Rule(
        names("GlobalMaxPool MaxPool"),
        _has_nan,
        "whether a NaN stays depends on its place in the window",
    ),
    Rule(
        names("AveragePool LpPool MaxPool"),
        _same_and_dilated,
        "automatic pads are those of a kernel without dilations, unlike its own shape inference's",
    ),
    Rule(
        names("AveragePool LpPool MaxPool"),
        _same_of_others,
        "the reference evaluator, which stands in, rounds what automatic pads leave down",
    ),
    Rule(
        names("MeanVarianceNormalization"),
        lambda node, operands: str(operands[0].dtype) == "float16",
        "1e-9 is 0 in float16, by which a variance of 0 is divided",
    ),
    Rule(names("Resize"), _nearest_not_finite, "the reference multiplies the farther one by 0"),
    Rule(names("Resize Upsample"), _nearest_large, "the reference takes integers through floats"),
    Rule(names("GridSample"), _places_of_less_precision, "places are rounded as the grid is"),
    Rule(
        names("QuantizeLinear"),
        _quantizes_large,
        "quotients overflow int32 before they are saturated",
    ),
    Rule(names("OneHot"), _rounds_one_hot, "off + (on - off) is not on"),
)
"""When onnxruntime, or what stands for it, is known to be wrong though ONNX's reference evaluator
does not say so, and what is wrong."""


def reason(rules: Sequence[Rule], node: onnx.NodeProto, operands: Operands) -> str | None:
    """That of the first rule that applies to a node."""
    for rule in rules:
        if node.op_type in rule.operators and rule.applies(node, operands):
            return rule.reason
    return None
