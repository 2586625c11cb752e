"""The partitioner `onednn`: subgraphs of float32 with static shapes for oneDNN's graph API.

A subgraph is exported to ONNX, whose operators are then described as oneDNN's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.errors import UnsupportedOperatorError

if TYPE_CHECKING:
    from onnx import ModelProto

Attributes = Mapping[str, Any]


def _window(attrs: Attributes) -> dict[str, Any]:
    """Attributes of convolutions and pools, as far as the operator has them."""
    half = len(attrs["pads"]) // 2
    found = {
        "strides": attrs["strides"],
        "pads_begin": attrs["pads"][:half],
        "pads_end": attrs["pads"][half:],
        "data_format": "NCX",
    }
    renamed = {
        **{"dilations": "dilations", "group": "groups", "output_padding": "output_padding"},
        "kernel_shape": "kernel",
    }
    found |= {name: attrs[key] for key, name in renamed.items() if key in attrs}
    if "group" in attrs:
        found["weights_format"] = "IOX" if "output_padding" in attrs else "OIX"
    if "count_include_pad" in attrs:
        found["exclude_pad"] = not attrs["count_include_pad"]
    return found


def _batch_norm(attrs: Attributes) -> dict[str, Any]:
    return {"epsilon": attrs["epsilon"], "data_format": "NCX"}


def _layer_norm(attrs: Attributes) -> dict[str, Any]:
    begin = {"begin_norm_axis": attrs["axis"], "keep_stats": False}
    return begin | {"epsilon": attrs["epsilon"]}


def _reduction(attrs: Attributes) -> dict[str, Any]:
    return {"axes": attrs["axes"], "keep_dims": bool(attrs["keepdims"])}


def _same(*names: str) -> Callable[[Attributes], dict[str, Any]]:
    return lambda attrs: {name: attrs[name] for name in names}


_OPERATORS: dict[str, tuple[str, Callable[[Attributes], dict[str, Any]]]] = {
    **{
        name: (kind or name, _same())
        for name, kind in {
            **dict.fromkeys(("Abs", "Add", "Exp", "Log", "MatMul", "Sigmoid", "Sqrt", "Tanh")),
            **{"Div": "Divide", "Max": "Maximum", "Min": "Minimum", "Mul": "Multiply"},
            **{"Relu": "ReLU", "Sub": "Subtract", "Identity": "Reshape"},
            **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), "Reshape"),
        }.items()
    },
    **{name: (name, _reduction) for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")},
    "AveragePool": ("AvgPool", _window),
    "BatchNormalization": ("BatchNormInference", _batch_norm),
    "Clip": ("Clamp", _same("min", "max")),
    "Concat": ("Concat", _same("axis")),
    "Conv": ("Convolution", _window),
    "ConvTranspose": ("ConvTranspose", _window),
    "GlobalAveragePool": ("ReduceMean", _reduction),
    "LayerNormalization": ("LayerNorm", _layer_norm),
    "LeakyRelu": ("LeakyReLU", _same("alpha")),
    "LogSoftmax": ("LogSoftmax", _same("axis")),
    "MaxPool": ("MaxPool", _window),
    "Softmax": ("SoftMax", _same("axis")),
    "Transpose": ("Transpose", lambda attrs: {"order": attrs["perm"]}),
}
"""ONNX's operators: oneDNN's name, and its attributes from ONNX's."""

_NAMES = {
    **dict.fromkeys(("concat", "concatenate"), "Concat"),
    **dict.fromkeys(("matmul", "nn.batch_matmul", "nn.dense", "nn.matmul"), "MatMul"),
    **dict.fromkeys(("expand_dims", "flatten", "nn.batch_flatten", "squeeze"), "Reshape"),
    **dict.fromkeys(("permute_dims", "transpose"), "Transpose"),
    **dict.fromkeys(("nn.leaky_relu", "nn.leakyrelu"), "LeakyRelu"),
    **{"clip": "Clip", "max": "ReduceMax", "mean": "ReduceMean", "min": "ReduceMin"},
    **{"nn.batch_norm": "BatchNormalization", "nn.bias_add": "Add", "nn.silu": "Sigmoid"},
    **{"nn.layer_norm": "LayerNormalization", "nn.log_softmax": "LogSoftmax"},
    **{"nn.softmax": "Softmax", "reshape": "Reshape", "sum": "ReduceSum"},
    **{"nn.adaptive_avg_pool": "GlobalAveragePool", "nn.avg_pool": "AveragePool"},
    **{"nn.conv": "Conv", "nn.global_avg_pool": "GlobalAveragePool", "nn.max_pool": "MaxPool"},
}
"""ONNX's operator of Relay's and Relax's, where the table of operator facts has none."""


def why_unsupported(op: str, attrs: Attributes, feeding: Sequence[Attributes]) -> str:
    """Why oneDNN can't run an operator that ONNX can express; "" if it can.

    `attrs`: Relay's or Relax's, as text, with "shape" and "dtype" of the result. `feeding`: those
    of the nodes that it reads.
    """
    from compiler.ir.op_facts import facts_named

    name = re.sub(r"[123]d(_transpose)?$", "", op)
    if (facts_named(op).onnx or _NAMES.get(name)) not in _OPERATORS:
        return f"{op} is not given to oneDNN"
    dtypes = str(attrs.get("dtype", "float32"))
    if {each.strip("[] ") for each in dtypes.split(",")} != {"float32"}:
        return f"dtype is {dtypes}; oneDNN gets float32"
    if name == "nn.avg_pool" and attrs.get("ceil_mode", "0") not in ("0", "False"):
        return "ceil_mode is set; only max pools have it in oneDNN"
    for shape in (str(each.get("shape", "1")) for each in (attrs, *feeding)):
        extents = [each.strip("[] ") for each in shape.split(",")]
        if not all(each.isdecimal() and int(each) for each in extents if shape != "[]"):
            return f"shape {shape} is not static, or has no elements"
    return ""


def describe(model: ModelProto) -> tuple[dict[str, Any], bytes]:
    """An ONNX model of static shapes as oneDNN's operators, and its constants.

    Returns `inputs` and `outputs` (numbers of tensors), `tensors` (shape and offset of a constant's
    bytes, else None) and `operators` (kind, inputs, outputs, attributes).
    Raises UnsupportedOperatorError: oneDNN lacks an operator or its form.
    """
    description = _Description(model)
    header = description.header()
    return header, b"".join(description.constants)


class _Description:
    """Tensors and operators, in the order of the model's nodes."""

    def __init__(self, model: ModelProto) -> None:
        import onnx

        self._model = onnx.shape_inference.infer_shapes(model)
        graph = self._model.graph
        self._values = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        self._shapes = {
            each.name: [int(dim.dim_value) for dim in each.type.tensor_type.shape.dim]
            for each in (*graph.input, *graph.value_info, *graph.output)
        }
        self._numbers: dict[str, int] = {}
        self.tensors: list[tuple[list[int], int | None]] = []
        self.operators: list[tuple[str, list[int], list[int], dict[str, Any]]] = []
        self.constants: list[bytes] = []
        self._size = 0
        self._computed: set[str] = set()  # results of operators that are no output yet
        for node in graph.node:
            self._add(node)

    def header(self) -> dict[str, Any]:
        """The result of `describe`."""
        graph = self._model.graph
        return {
            "inputs": [self._number(each.name) for each in graph.input],
            "outputs": [self._number(each.name) for each in graph.output],
            "tensors": self.tensors,
            "operators": self.operators,
        }

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            offset, shape = None, self._shapes.get(name)
            if name in self._values:
                value = np.asarray(self._values[name], order="C")
                if value.dtype != np.float32:
                    raise UnsupportedOperatorError(f"oneDNN gets float32, not {value.dtype}")
                shape, offset = list(value.shape), self._size
                self.constants.append(value.tobytes())
                self._size += value.nbytes
            if shape is None or not all(shape):
                raise UnsupportedOperatorError(f"the shape {shape} of {name!r} is not static")
            self._numbers[name] = len(self.tensors)
            self.tensors.append((shape or [1], offset))
        return self._numbers[name]

    def _add(self, node: Any) -> None:
        import onnx

        attrs = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        first, result, kind = node.input[0], node.output[0], node.op_type
        if kind == "Identity" and first in self._computed:
            self._computed.remove(first)  # the memory of one output only
            self._numbers[result] = self._number(first)
            return
        if kind in ("Reshape", "Transpose") and first in self._values:
            value = self._values[first]
            self._values[result] = (
                value.transpose(attrs.get("perm"))
                if kind == "Transpose"
                else value.reshape(self._shapes[result])
            )
            return
        if kind not in _OPERATORS:
            raise UnsupportedOperatorError(f"ONNX operator {kind} is not given to oneDNN")
        operands = [*node.input]
        if kind == "Clip":
            attrs |= {key: self._values[operands.pop(1)].item() for key in ("min", "max")}
        elif kind == "ReduceSum" and len(operands) == 2:
            attrs["axes"] = self._values[operands.pop()].tolist()
        elif kind == "Reshape":
            del operands[1]
        elif kind == "MaxPool" and attrs.get("ceil_mode"):
            self._pad_last_windows(attrs, self._shapes[first][2:], self._shapes[result][2:])
        axes = [*range(len(self._shapes.get(first, ())))]
        absent = {"axes": axes[2:] if kind == "GlobalAveragePool" else axes, "perm": axes[::-1]}
        kind, convert = _OPERATORS[kind]
        found = convert({**absent, "keepdims": 1, **attrs})
        inputs = [self._number(name) for name in operands]
        self.operators.append((kind, inputs, [self._number(result)], found))
        self._computed.add(result)

    def _pad_last_windows(self, attrs: dict[str, Any], size: list[int], pooled: list[int]) -> None:
        """Set the padding at the ends for which sizes that are rounded down are those of a pool."""
        rank = len(size)
        keys = "pads", "strides", "kernel_shape", "dilations"
        begins, strides, kernels, dilations = (attrs[key][:rank] for key in keys)
        ends = [
            max(0, (count - 1) * stride + dilation * (kernel - 1) + 1 - extent - begin)
            for count, stride, dilation, kernel, extent, begin in zip(
                pooled, strides, dilations, kernels, size, begins
            )
        ]
        attrs["pads"] = [*begins, *ends]
