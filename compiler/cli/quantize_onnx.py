"""ONNX models with quantize and dequantize nodes around their layers.

    x -> Conv(x, w, b)    ->    x -> QuantizeLinear -> DequantizeLinear -> Conv(.., int8 w, int32 b)

Activations are uint8 with one scale and zero point, weights int8 with one scale for each output
channel, biases int32 in units of both scales. All that reads a quantized tensor reads what is
dequantized.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.errors import FrontendError, InputError
from compiler.relay.frontend.onnx.node_order import sorted_model

LEAST_OPSET = 13  # of scales along an axis
_LAYERS = ("Conv", "Gemm", "MatMul")
_MOST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Layer:
    """A node with constant weights."""

    name: str  # of the node, or of its result where it has none
    operator: str
    data: str  # data, weight, result: tensors by name
    weight: str
    result: str
    bias: str  # "" without one
    axis: int  # of the weights, along which the output channels go


def find_layers(model: onnx.ModelProto, skipped: Collection[str] = ()) -> list[Layer]:
    """The layers that can be quantized, in the model's order.

    Raises InputError: the model's operator set is too old, it has none of these layers, or
    `skipped` names what is not one.
    """
    opset = max(
        (each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=0
    )
    if opset < LEAST_OPSET:
        raise InputError(
            f"the model is of ONNX's operator set {opset}; scales along an axis came with "
            f"{LEAST_OPSET}: convert it with onnx.version_converter"
        )
    weights = {each.name: each for each in model.graph.initializer}
    layers = []
    for node in model.graph.node:
        if node.op_type not in _LAYERS or node.domain not in ("", "ai.onnx"):
            continue
        data, name, *rest = node.input
        weight = weights.get(name)
        if weight is None or weight.data_type != onnx.TensorProto.FLOAT or data in weights:
            continue
        axis = _axis(node, len(weight.dims))
        if axis is not None:
            bias = rest[0] if rest and rest[0] in weights and _is_plain(node) else ""
            own = node.name or node.output[0]
            layers.append(Layer(own, node.op_type, data, name, node.output[0], bias, axis))
    unknown = sorted(set(skipped) - {each.name for each in layers})
    if unknown:
        known = ", ".join(each.name for each in layers[:5])
        raise InputError(f"there is no layer {unknown[0]!r} to skip; the first are {known}")
    left = [each for each in layers if each.name not in skipped]
    if not left:
        raise InputError(f"the model has no {', '.join(_LAYERS)} with constant weights to quantize")
    return left


def _axis(node: onnx.NodeProto, rank: int) -> int | None:
    """Along which output channels go; None where scales can't go along them."""
    if node.op_type == "Conv":
        return 0
    if rank != 2:
        return None
    return 0 if node.op_type == "Gemm" and _attribute(node, "transB", 0) else 1


def _is_plain(node: onnx.NodeProto) -> bool:
    """Whether a bias is added as it is."""
    return all(_attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta"))


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def read_onnx(path: Path) -> onnx.ModelProto:
    """A model with all its weights, its nodes in order. Raises FrontendError: it can't be read."""
    try:
        return sorted_model(onnx.load(path))
    except Exception as error:  # protobuf has its own error types
        raise FrontendError(f"can't read {str(path)!r} as ONNX: {error}") from error


def with_outputs(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """The model with these tensors as its results, in this order."""
    made = onnx.shape_inference.infer_shapes(model)
    known = {each.name: each for each in (*made.graph.value_info, *made.graph.output)}
    del made.graph.output[:]
    made.graph.output.extend(
        known.get(name) or helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in names
    )
    return made


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with batch norms behind convolutions in these's weights."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    weights = {each.name: each for each in graph.initializer}
    makers = {node.output[0]: node for node in graph.node}
    uses = [name for node in graph.node for name in node.input]
    uses += [each.name for each in graph.output]
    for norm in [node for node in graph.node if node.op_type == "BatchNormalization"]:
        conv = makers.get(norm.input[0])
        numbers = [weights.get(name) for name in norm.input[1:]]
        if conv is None or conv.op_type != "Conv" or uses.count(conv.output[0]) > 1:
            continue
        weight = weights.get(conv.input[1])
        bias = weights.get(conv.input[2]) if len(conv.input) > 2 else None
        if None in numbers or weight is None or (bias is None and len(conv.input) > 2):
            continue
        if uses.count(conv.input[1]) > 1 or len(norm.output) > 1:
            continue
        gamma, beta, mean, variance = map(numpy_helper.to_array, numbers)
        factor = gamma / np.sqrt(variance + _attribute(norm, "epsilon", 1e-5))
        filters = numpy_helper.to_array(weight)
        offset = numpy_helper.to_array(bias) if bias is not None else np.zeros_like(mean)
        shape = (-1, *[1] * (filters.ndim - 1))
        scaled = (filters * factor.reshape(shape)).astype("float32")
        weight.CopyFrom(numpy_helper.from_array(scaled, weight.name))
        name = f"{norm.output[0]}_bias"
        shifted = ((offset - mean) * factor + beta).astype("float32")
        graph.initializer.append(numpy_helper.from_array(shifted, name))
        conv.input[:] = [*conv.input[:2], name]
        conv.output[0] = norm.output[0]
        graph.node.remove(norm)
    return made


def scale_of(low: float, high: float) -> tuple[np.float32, np.uint8]:
    """Scale and zero point of uint8 for numbers of a range, which 0 is always part of."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / 255 or 1.0)
    return scale, np.uint8(np.clip(np.rint(-low / scale), 0, 255))


def whole_weights(weight: np.ndarray, axis: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Scales along an axis, and weights as int8.

    With 7 bits, channels some of whose neighbors are large together have a scale that is a little
    larger, so that sums of products fit 16 bits where CPUs without VNNI add them (`dots.widest`).
    """
    from schedules.x86.machine.dot_product import MOST_NARROW, MOST_OF_A_SIGN, widest

    most = (1 << bits - 1) - 1
    rows = np.moveaxis(weight, 1 - axis, -1)  # output channels first, input channels last
    largest = np.abs(rows).reshape(len(rows), -1).max(1, initial=0)
    scales = np.where(largest > 0, largest / most, 1).astype("float32")
    while True:
        shape = (-1, *[1] * (rows.ndim - 1))
        steps = np.clip(np.rint(rows / scales.reshape(shape)), -most, most).astype("int8")
        beyond = widest(steps, MOST_NARROW) / MOST_OF_A_SIGN
        if bits == 8 or beyond.max(initial=0) <= 1:
            break
        scales *= np.maximum(beyond, 1).astype("float32")
    return scales, np.ascontiguousarray(np.moveaxis(steps, -1, 1 - axis))


def quantized(
    model: onnx.ModelProto,
    layers: Collection[Layer],
    ranges: Mapping[str, tuple[float, float]],
    weight_bits: int = 8,
) -> onnx.ModelProto:
    """The model with its layers on integers.

    `ranges`: least and largest number of each layer's data. `weight_bits`: of the weights'
    integers, with their sign.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    weights = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    writer = _Writer(weights, weight_bits)
    for layer in layers:
        writer.add(layer, scale_of(*ranges[layer.data]))
    nodes = list(writer.of_constants)
    known = {each.name for each in graph.input}
    nodes += [each for name in known for each in writer.behind.get(name, ())]
    for node in graph.node:
        for index, name in enumerate(node.input):
            own = writer.read_by.get((node.output[0], name))
            node.input[index] = own or writer.read_by_all.get(name, name)
        nodes += [node, *(each for name in node.output for each in writer.behind.get(name, ()))]
    used = {name for node in nodes for name in node.input} | {each.name for each in graph.output}
    constants = [numpy_helper.from_array(array, name) for name, array in writer.constants.items()]
    kept = [each for each in [*graph.initializer, *constants] if each.name in used]
    inputs = [each for each in graph.input if each.name in used or each.name not in writer.weights]
    del graph.node[:], graph.initializer[:], graph.input[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    graph.input.extend(inputs)
    return made


class _Writer:
    """The nodes and constants that quantized layers add to a graph.

    `weights`, `constants`: those of the graph, and the new ones. `bits`: of a weight's integers.
    `of_constants`: nodes that read constants alone. `behind`: nodes that read a tensor that running
    tells. `read_by`: what one node reads instead of an operand. `read_by_all`: what every node
    reads instead of a tensor.
    """

    def __init__(self, weights: dict[str, np.ndarray], bits: int) -> None:
        self.weights = weights
        self.bits = bits
        self.constants: dict[str, np.ndarray] = {}
        self.of_constants: list[onnx.NodeProto] = []
        self.behind: dict[str, list[onnx.NodeProto]] = {}
        self.read_by: dict[tuple[str, str], str] = {}
        self.read_by_all: dict[str, str] = {}

    def add(self, layer: Layer, numbers: tuple[np.float32, np.uint8]) -> None:
        """Quantize what a layer reads; `numbers` are its data's scale and zero point."""
        data, (scale, _) = layer.data, numbers
        if data not in self.read_by_all:
            names = self._numbers(data, *numbers)
            quantize = _node("QuantizeLinear", [data, *names], f"{data}_quantized")
            self.behind[data] = [quantize, self._dequantize(data, names)]
            self.read_by_all[data] = f"{data}_dequantized"
        scales, steps = whole_weights(self.weights[layer.weight], layer.axis, self.bits)
        name = f"{layer.weight}_along_{layer.axis}"
        self._constant(layer, layer.weight, name, scales, steps, layer.axis)
        if layer.bias and self.weights[layer.bias].shape == scales.shape:
            units = scale * scales
            whole = np.rint(self.weights[layer.bias] / units.astype("float64"))
            if np.abs(whole).max(initial=0) <= _MOST_INT32:
                name = f"{layer.result}_{layer.bias}"
                self._constant(layer, layer.bias, name, units, whole.astype("int32"), 0)

    def _constant(
        self, layer: Layer, old: str, name: str, scales: Any, integers: np.ndarray, axis: int
    ) -> None:
        self.read_by[layer.result, old] = f"{name}_dequantized"
        if f"{name}_scale" not in self.constants:
            names = self._numbers(name, scales, np.zeros(scales.shape, integers.dtype))
            self.constants[f"{name}_quantized"] = integers
            self.of_constants.append(self._dequantize(name, names, axis=axis))

    def _numbers(self, name: str, scale: Any, zero: Any) -> list[str]:
        self.constants |= {f"{name}_scale": np.asarray(scale), f"{name}_zero": np.asarray(zero)}
        return [f"{name}_scale", f"{name}_zero"]

    def _dequantize(self, name: str, numbers: list[str], **attrs: Any) -> onnx.NodeProto:
        operands = [f"{name}_quantized", *numbers]
        return _node("DequantizeLinear", operands, f"{name}_dequantized", **attrs)


def _node(kind: str, operands: list[str], result: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(kind, operands, [result], name=f"{result}_node", **attrs)
