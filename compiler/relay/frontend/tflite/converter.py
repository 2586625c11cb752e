"""TVM's TFLite converters, with the options that they pass over honored or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter

from compiler.errors import UnsupportedOperatorError

_UNREAD = {
    "FullyConnectedOptions": ("WeightsFormat",),
    "GatherOptions": ("BatchDims",),
    "LSTMOptions": ("KernelType",),
    "StridedSliceOptions": ("Offset",),
}
"""Options that TVM's converters do not read although results depend on them; 0 is the default."""

_INTEGERS = {
    getattr(tflite.TensorType, kind.upper()): kind
    for kind in ("int8", "uint8", "int16", "uint16", "int32", "int64")
}

_KINDS = {number: name for name, number in vars(tflite.BuiltinOptions).items()}


class Converter(OperatorConverter):
    """Converts one graph of a TFLite model."""

    def check_unsupported_ops(self) -> None:
        """Raise for what can't be converted, before any work is done."""
        super().check_unsupported_ops()
        for index in range(self.subgraph.OperatorsLength()):
            op = self.subgraph.Operators(index)
            operands = [*op.InputsAsNumpy(), *op.OutputsAsNumpy()]
            for number in (each for each in operands if each >= 0):
                wrong = _wrong_quantization(self.subgraph.Tensors(number))
                if wrong:
                    raise UnsupportedOperatorError(
                        f"operator {self.get_op_code_str(op)} (number {index} of its graph): "
                        + wrong
                    )
            for name in _UNREAD.get(_KINDS.get(op.BuiltinOptionsType(), ""), ()):
                value = getattr(_options(op), name)()
                if value:
                    raise UnsupportedOperatorError(
                        f"operator {self.get_op_code_str(op)} (number {index} of its graph): the "
                        f"option {name}={value} is not supported"
                    )

    def dequantize(self, expr: relax.Expr, tensor: Any) -> relax.Expr:
        """The real numbers of a quantized tensor."""
        if tensor.tensor.Type() != tflite.TensorType.INT64:
            return super().dequantize(expr, tensor)
        values = relax.op.astype(expr, "float32")  # a bias beside data of int16
        return relax.op.multiply(values, tensor.qnn_params["scale"])

    def convert_softmax(self, op: Any) -> relax.Expr:
        """exp(beta * x) over its sum along the last axis."""
        options = _options(op)
        data, result = self.get_input_tensors(op)[0], self.get_output_tensors(op)[0]
        value = self.get_tensor_expr(data)
        if data.qnn_params:
            value = self.dequantize(value, data)
        value = self.bb.normalize(value)
        if options is not None and options.Beta() != 1:
            value = relax.op.multiply(value, relax.const(options.Beta(), str(value.ty.dtype)))
        value = relax.op.nn.softmax(value, axis=-1)
        return self.quantize(value, result) if result.qnn_params else value

    def convert_gelu(self, op: Any) -> relax.Expr:
        """GELU by the error function or its tanh approximation."""
        options = _options(op)
        if options is None or not options.Approximate() or self.is_quantized(op):
            return super().convert_gelu(op)
        return relax.op.nn.gelu_tanh(self.get_tensor_expr(self.get_input_tensors(op)[0]))

    def convert_fully_connected(self, op: Any) -> relax.Expr:
        """A dense layer; unless it keeps the axes of its input, of a matrix of rows."""
        result = super().convert_fully_connected(op)
        data, weight, *_ = self.get_input_tensors(op)
        if _options(op).KeepNumDims() or len(self.get_tensor_shape(data)) == 2:
            return result
        units = int(self.get_tensor_shape(weight)[0])
        return relax.op.reshape(self.bb.normalize(result), (-1, units))

    def convert_resize_nearest_neighbor(self, op: Any) -> relax.Expr:
        """Halves between two pixels go to the later one where corners are aligned."""
        options = _options(op)
        if options is None or not options.AlignCorners():
            return super().convert_resize_nearest_neighbor(op)
        if options.HalfPixelCenters():
            raise UnsupportedOperatorError(
                "operator RESIZE_NEAREST_NEIGHBOR: AlignCorners and HalfPixelCenters at once are "
                "not supported"
            )
        data, size = self.get_input_tensors(op)
        return relax.op.image.resize2d(
            self.get_tensor_expr(data),
            tuple(int(extent) for extent in self.get_tensor_value(size)),
            layout="NHWC",
            method="nearest_neighbor",
            coordinate_transformation_mode="align_corners",
            rounding_method="round_prefer_ceil",
        )

    def convert_transpose_conv(self, op: Any) -> relax.Expr:
        """A transposed convolution and the activation fused with it."""
        activation = _options(op).FusedActivationFunction()
        if activation and self.get_output_tensors(op)[0].qnn_params:
            raise UnsupportedOperatorError(
                "operator TRANSPOSE_CONV: the option FusedActivationFunction of a quantized one "
                "is not supported"
            )
        result = super().convert_transpose_conv(op)
        return self.convert_fused_activation_function(result, activation)

    def _convert_arg_min_max(self, op: Any, relax_op: Any) -> relax.Expr:
        """Positions in the dtype of the output."""
        dtype = self.get_tensor_type_str(self.get_output_tensors(op)[0].tensor.Type())
        return relax.op.astype(super()._convert_arg_min_max(op, relax_op), dtype)


def _wrong_quantization(tensor: Any) -> str:
    """Why the scales and zero points of a tensor quantize nothing; "" if they do, or are none."""
    numbers = tensor.Quantization()
    if numbers is None or not numbers.ScaleLength():
        return ""
    scales, zeros, axis = numbers.ScaleAsNumpy(), numbers.ZeroPointAsNumpy(), 0
    what = f"tensor {tensor.Name().decode('utf-8', 'replace')!r} has"
    shape = [tensor.Shape(i) for i in range(tensor.ShapeLength())]
    kind = _INTEGERS.get(tensor.Type())
    if kind in ("int32", "int64") and not np.any(scales):  # a shape, which has none
        return ""
    if not np.all(np.isfinite(scales) & (scales > 0)):
        return f"{what} a scale that is not a positive finite number"
    if numbers.ZeroPointLength() != len(scales):
        return f"{what} {len(scales)} scales and {numbers.ZeroPointLength()} zero points"
    if len(scales) > 1:
        axis = numbers.QuantizedDimension()
        if not 0 <= axis < len(shape) or shape[axis] != len(scales):
            return f"{what} {len(scales)} scales along axis {axis} of the shape {shape}"
    if kind is None:
        return f"{what} scales, but is not a tensor of integers"
    if np.any((zeros < np.iinfo(kind).min) | (zeros > np.iinfo(kind).max)):
        return f"{what} a zero point that is not a number of {kind}"
    return "" if kind != "int64" or not np.any(zeros) else f"{what} a zero point of int64 beside 0"


def _options(op: Any) -> Any:
    """The operator's table of options; None where it has none."""
    table = op.BuiltinOptions()
    if table is None:
        return None
    options = getattr(tflite, _KINDS[op.BuiltinOptionsType()])()
    options.Init(table.Bytes, table.Pos)
    return options
