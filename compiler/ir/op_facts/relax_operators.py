"""Facts of Relax's operators, sorted by kind and name."""

import math

import numpy as np

from . import index_rules, shape_rules
from . import numpy_functions as npf
from .facts import (
    BINARY,
    CONCAT,
    CONVOLUTION,
    FOLLOWS,
    IN_FLOAT32,
    POINTWISE,
    POOL,
    PREDICATE,
    REDUCTION,
    RESHAPE,
    SCATTER,
    SUMS_IN_FLOAT32,
    TRANSPOSE,
    TRANSPOSED_CONVOLUTION,
    UNARY,
    WINDOW,
    declare,
)

# Elementwise on one tensor. As float16, sigmoid(-12) would divide by infinity, and tanh and 1 + erf
# would subtract nearly equal values: these are computed in float32.
declare("abs", UNARY, evaluate=npf.elementwise(np.abs), onnx="Abs")
declare("astype", UNARY, relay_name="cast", half="", evaluate=npf.astype, any_dtype=True)
declare("ceil", UNARY, evaluate=npf.elementwise(np.ceil), onnx="Ceil")
declare("clip", UNARY, evaluate=npf.clip)
declare("cos", UNARY, half="", evaluate=npf.in_float64(np.cos), onnx="Cos")
declare(
    "erf",
    UNARY,
    half=IN_FLOAT32,
    evaluate=npf.in_float64(np.vectorize(math.erf, otypes=[float])),
    onnx="Erf",
)
declare("exp", UNARY, unbounded=True, evaluate=npf.in_float64(np.exp), onnx="Exp")
declare("floor", UNARY, evaluate=npf.elementwise(np.floor), onnx="Floor")
declare("log", UNARY, unbounded=True, evaluate=npf.in_float64(np.log), onnx="Log")
declare("negative", UNARY, evaluate=npf.elementwise(np.negative), onnx="Neg")
declare("nn.gelu", UNARY, half=IN_FLOAT32)
declare("nn.gelu_tanh", UNARY, half=IN_FLOAT32)
declare(
    "nn.leakyrelu", UNARY, relay_name="nn.leaky_relu", homogeneous=True, evaluate=npf.leaky_relu
)
declare(
    "nn.relu",
    UNARY,
    bounded=True,
    homogeneous=True,
    evaluate=lambda call, operands: np.maximum(operands[0], 0),
    onnx="Relu",
)
declare("nn.relu6", UNARY)
declare("nn.selu", UNARY)
declare("nn.silu", UNARY, half=IN_FLOAT32, bounded=True)
declare("nn.softplus", UNARY, unbounded=True)
declare("round", UNARY, bounded=True)
declare("rsqrt", UNARY, unbounded=True, evaluate=npf.in_float64(lambda data: 1 / np.sqrt(data)))
declare(
    "sigmoid",
    UNARY,
    half=IN_FLOAT32,
    bound=1.0,
    evaluate=npf.in_float64(lambda data: 1 / (1 + np.exp(-data))),
    onnx="Sigmoid",
)
declare("sign", UNARY, half="", evaluate=npf.elementwise(np.sign))
declare("sin", UNARY, half="", evaluate=npf.in_float64(np.sin), onnx="Sin")
declare("sqrt", UNARY, unbounded=True, evaluate=npf.in_float64(np.sqrt), onnx="Sqrt")
declare("square", UNARY, evaluate=npf.elementwise(np.square))
declare("tanh", UNARY, half=IN_FLOAT32, bound=1.0, evaluate=npf.in_float64(np.tanh), onnx="Tanh")

# Elementwise on two tensors.
declare("add", BINARY, evaluate=npf.elementwise(np.add), onnx="Add")
declare("divide", BINARY, unbounded=True, division="quotient", evaluate=npf.divide, onnx="Div")
declare("maximum", BINARY, evaluate=npf.elementwise(np.maximum), onnx="Max")
declare("minimum", BINARY, evaluate=npf.elementwise(np.minimum), onnx="Min")
declare("multiply", BINARY, evaluate=npf.elementwise(np.multiply), onnx="Mul")
declare("power", BINARY, unbounded=True, evaluate=npf.power, onnx="Pow")
declare("right_shift", BINARY, half="", evaluate=npf.right_shift)
declare("subtract", BINARY, evaluate=npf.elementwise(np.subtract), onnx="Sub")

# Comparisons and logic.
declare("equal", PREDICATE, evaluate=npf.elementwise(np.equal), onnx="Equal")
declare("greater", PREDICATE, evaluate=npf.elementwise(np.greater), onnx="Greater")
declare("greater_equal", PREDICATE, evaluate=npf.elementwise(np.greater_equal))
declare("isfinite", PREDICATE, evaluate=npf.elementwise(np.isfinite))
declare("isinf", PREDICATE, evaluate=npf.elementwise(np.isinf))
declare("isnan", PREDICATE, evaluate=npf.elementwise(np.isnan))
declare("less", PREDICATE, evaluate=npf.elementwise(np.less), onnx="Less")
declare("less_equal", PREDICATE, evaluate=npf.elementwise(np.less_equal))
declare("logical_and", PREDICATE, evaluate=npf.elementwise(np.logical_and), onnx="And")
declare("logical_not", PREDICATE, evaluate=npf.elementwise(np.logical_not), onnx="Not")
declare("logical_or", PREDICATE, evaluate=npf.elementwise(np.logical_or), onnx="Or")
declare("not_equal", PREDICATE, evaluate=npf.elementwise(np.not_equal))

# Windows over images.
_CONVOLUTION = shape_rules.all_of(shape_rules.convolution_channels(False), shape_rules.windows)
for _rank in (1, 2, 3):
    declare(f"nn.avg_pool{_rank}d", POOL, bounded=True, shapes=shape_rules.windows)
    declare(f"nn.adaptive_avg_pool{_rank}d", POOL, bounded=True)
    declare(f"nn.max_pool{_rank}d", POOL, half=FOLLOWS, selects=True, shapes=shape_rules.windows)
    declare(f"nn.conv{_rank}d", CONVOLUTION, shapes=_CONVOLUTION)
    declare(
        f"nn.conv{_rank}d_transpose",
        TRANSPOSED_CONVOLUTION,
        shapes=shape_rules.all_of(shape_rules.convolution_channels(True), shape_rules.windows),
    )
    declare(
        f"image.resize{_rank}d", batch=WINDOW, shapes=shape_rules.nonempty(shape_rules.spatial_axes)
    )

# Reductions.
declare("max", REDUCTION, half=FOLLOWS, selects=True, evaluate=npf.reduction(np.max, wide=False))
declare("mean", REDUCTION, bounded=True, evaluate=npf.reduction(np.mean, wide=True))
declare("min", REDUCTION, half=FOLLOWS, selects=True, evaluate=npf.reduction(np.min, wide=False))
declare("prod", REDUCTION, half=IN_FLOAT32, evaluate=npf.reduction(np.prod, wide=True))
declare("std", REDUCTION)
declare("sum", REDUCTION, evaluate=npf.reduction(np.sum, wide=True))
declare("variance", REDUCTION)

# Rearrangements of elements.
declare("expand_dims", RESHAPE, evaluate=npf.same_elements)
declare("flatten", RESHAPE, evaluate=npf.same_elements)
declare("nn.batch_flatten", RESHAPE, evaluate=npf.same_elements)
declare("reshape", RESHAPE, evaluate=npf.same_elements)
declare("squeeze", RESHAPE, batch="axis", evaluate=npf.same_elements)
declare("permute_dims", TRANSPOSE, relay_name="transpose", evaluate=npf.permute_dims)
declare(
    "concat",
    CONCAT,
    relay_name="concatenate",
    evaluate=npf.concat,
    shapes=shape_rules.concat_extents,
)

# Normalizations with parameters along some axes.
for _name, _parameters, _batch, _axes in (
    ("batch_norm", 4, "axis", shape_rules.axis_attribute),
    ("group_norm", 2, "axes", shape_rules.channel_axis),
    ("instance_norm", 2, "axes", shape_rules.channel_axis),
    ("layer_norm", 2, "axes", shape_rules.axes_attribute),
    ("rms_norm", 1, "", shape_rules.axes_attribute),
):
    _shapes = shape_rules.norm_parameters(_parameters, _axes)
    declare(f"nn.{_name}", half=IN_FLOAT32, batch=_batch, shapes=_shapes)

# Others.
declare("acos", batch=POINTWISE, evaluate=npf.in_float64(np.arccos))
declare("acosh", evaluate=npf.in_float64(np.arccosh))
declare("arange", evaluate=npf.arange)
declare("argmax", shapes=shape_rules.nonempty(shape_rules.reduced_axes))
declare("argmin", shapes=shape_rules.nonempty(shape_rules.reduced_axes))
declare("asin", batch=POINTWISE, evaluate=npf.in_float64(np.arcsin))
declare("asinh", evaluate=npf.in_float64(np.arcsinh))
declare("atan", batch=POINTWISE, evaluate=npf.in_float64(np.arctan))
declare("atanh", evaluate=npf.in_float64(np.arctanh))
declare("bitwise_and", evaluate=npf.elementwise(np.bitwise_and))
declare("bitwise_not", evaluate=npf.elementwise(np.invert))
declare("bitwise_or", evaluate=npf.elementwise(np.bitwise_or))
declare("bitwise_xor", evaluate=npf.elementwise(np.bitwise_xor))
declare("broadcast_to", half=FOLLOWS, selects=True, evaluate=npf.broadcast_to)
declare("cosh", evaluate=npf.in_float64(np.cosh))
declare("cumprod", half=IN_FLOAT32)
declare("cumsum", half=IN_FLOAT32)
declare("einsum", half=IN_FLOAT32, sums_products=True, shapes=shape_rules.einsum_extents)
declare(
    "flip", batch="axis", evaluate=lambda call, operands: np.flip(operands[0], int(call.attrs.axis))
)
declare("floor_divide", division="quotient", evaluate=npf.integer_division(np.floor_divide))
declare("floor_mod", division="remainder", evaluate=npf.integer_division(np.mod))
declare("full", evaluate=npf.broadcast_to)
declare(
    "gather_elements",
    shapes=shape_rules.index_extents,
    indices=index_rules.along_axis(1, from_end=True),
)
declare("gather_nd", shapes=shape_rules.coordinates(last=True), indices=index_rules.coordinates(-1))
declare(
    "image.grid_sample",
    shapes=shape_rules.all_of(
        shape_rules.same_extent(1, 0, of=0, of_axis=0),
        shape_rules.nonempty(shape_rules.spatial_axes),
    ),
)
declare("index_put", indices=index_rules.advanced_indices)
declare("index_tensor", indices=index_rules.advanced_indices)
declare("layout_transform", evaluate=npf.layout_transform)
declare("logical_xor", evaluate=npf.elementwise(np.logical_xor))
declare(
    "matmul",
    relay_name="nn.matmul",
    half=IN_FLOAT32,
    sums_products=True,
    evaluate=npf.matmul,
    shapes=shape_rules.matmul_extents,
    onnx="MatMul",
)
declare("mod", batch=POINTWISE, division="remainder", evaluate=npf.integer_division(np.fmod))
declare("multinomial_from_uniform", indices=index_rules.first_axis(2))
declare("nn.attention", half=IN_FLOAT32, shapes=shape_rules.attention_extents)
declare("nn.attention_bias", shapes=shape_rules.attention_extents)
declare("nn.log_softmax", half=SUMS_IN_FLOAT32, batch="axis")
declare("nn.nll_loss", indices=index_rules.class_labels)
declare("nn.pad", half=FOLLOWS, evaluate=npf.pad, shapes=shape_rules.mirror_extents)
declare(
    "nn.prelu",
    half=FOLLOWS,
    batch="axis",
    shapes=shape_rules.norm_parameters(1, shape_rules.axis_attribute),
)
declare("nn.softmax", half=SUMS_IN_FLOAT32, batch="axis", bound=1.0)
declare("ones", evaluate=npf.filled(1))
declare("repeat", evaluate=npf.repeat)
declare(
    "reverse_sequence", shapes=shape_rules.sequence_lengths(1), indices=index_rules.sequence_lengths
)
declare(
    "scatter_elements",
    SCATTER,
    shapes=shape_rules.index_extents,
    indices=index_rules.along_axis(1, from_end=True),
)
declare(
    "scatter_nd",
    SCATTER,
    shapes=shape_rules.coordinates(last=True),
    indices=index_rules.coordinates(-1),
)
declare("sinh", evaluate=npf.in_float64(np.sinh))
declare("split", batch="axis", evaluate=npf.split)
declare("stack", evaluate=npf.stack)
declare("strided_slice", selects=True, evaluate=npf.strided_slice)
declare(
    "take",
    batch="axis",
    selects=True,
    evaluate=npf.take,
    shapes=shape_rules.take_batches,
    indices=index_rules.take_indices,
)
declare("tan", batch=POINTWISE, evaluate=npf.in_float64(np.tan))
declare("tile", evaluate=npf.tile)
declare("topk", shapes=shape_rules.topk_count)
declare("trunc", evaluate=npf.elementwise(np.trunc))
declare("vision.non_max_suppression", indices=index_rules.box_counts(1, of=0))
declare("vision.roi_align", indices=index_rules.region_batches)
declare("vision.roi_pool", indices=index_rules.region_batches)
declare("where", half=FOLLOWS, batch=POINTWISE, evaluate=npf.elementwise(np.where), onnx="Where")
declare("zeros", evaluate=npf.filled(0))
