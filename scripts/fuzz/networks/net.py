"""A network under construction: tensors by name, with open axes, as an exporter would write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17

ACTIVATIONS = (
    *("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Elu", "Softplus", "Clip"),
    *("gelu", "silu", "mish"),
)

Dim = int | str
"""An extent of an input: a number, or the name of a symbol."""


@dataclass(frozen=True)
class Input:
    """An input: its dtype, its dimensions and its values.

    Integers are at least `least` and less than `high`, a number or the extent of a symbol.
    """

    dtype: str
    dims: tuple[Dim, ...]
    high: Dim = 0
    least: int = 0


@dataclass
class Tensor:
    """A tensor in a network: its name, its rank and the extent of its channel axis."""

    name: str
    rank: int
    channels: int


@dataclass
class Network:
    """Nodes, weights and inputs; `ordinary` has the usual extents of each open symbol."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    ordinary: dict[str, tuple[int, int]] = field(default_factory=dict)
    stages: list[str] = field(default_factory=list)
    _made: int = 0

    # ------------------------------------------------------------ chance

    def chance(self, probability: float = 0.5) -> bool:
        """True as often as `probability` says."""
        return bool(self.rng.random() < probability)

    def one_of(self, *items: Any) -> Any:
        """Any of `items`."""
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """Any integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    # ------------------------------------------------------------ inputs and weights

    def axis(self, name: str, low: int, high: int, opened: float = 0.7) -> Dim:
        """An axis of inputs: open with that probability, its ordinary extents from low to high."""
        if name in self.ordinary:
            return name
        if self.chance(opened):
            self.ordinary[name] = (low, high)
            return name
        return self.integer(low, high)

    def input(
        self, dims: Sequence[Dim], dtype: str = "float32", high: Dim = 0, least: int = 0
    ) -> str:
        """A new input."""
        name = f"in{len(self.inputs)}"
        self.inputs[name] = Input(dtype, tuple(dims), high, least)
        return name

    def weight(self, *shape: int, scale: float = 0.0) -> str:
        """Random float weights, by default of a size that keeps the size of values."""
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 4
        array = self.rng.standard_normal(shape) * (scale or 1 / np.sqrt(max(fan, 1)))
        return self.const(array.astype("float32"))

    def const(self, value: Any, dtype: str | None = None) -> str:
        """A constant: an initializer, or at times a node Constant."""
        array = np.asarray(
            value, dtype or (None if isinstance(value, (np.ndarray, np.generic)) else "int64")
        )
        if array.size < 8 and self.chance(0.3):
            return self.op("Constant", value=numpy_helper.from_array(array))
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    # ------------------------------------------------------------ nodes

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The result of a node, or a list of them."""
        names = [f"t{self._made + i}" for i in range(outputs)]
        self._made += outputs
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(kind, list(inputs), names, **given))
        return names[0] if outputs == 1 else names

    def body(self, inputs: Sequence[tuple[str, str, Sequence[Any]]], build: Any) -> onnx.GraphProto:
        """A graph for Loop, Scan and If.

        `inputs` are names, dtypes and shapes; `build` appends nodes and returns the outputs, given
        in the same way.
        """
        outer, self.nodes = self.nodes, []
        outputs = build()
        nodes, self.nodes = self.nodes, outer
        return helper.make_graph(
            nodes, "body", [_info(*i) for i in inputs], [_info(*o) for o in outputs]
        )

    # ------------------------------------------------------------ shapes, as exporters compute them

    def dim(self, x: str, axis: int) -> str:
        """One extent of a tensor, as a vector of one element."""
        form = self.integer(0, 3)
        if form == 0:
            return str(self.op("Shape", x, start=axis, end=axis + 1))
        shape = self.op("Shape", x)
        if form == 1:
            return str(
                self.op("Slice", shape, self.const([axis]), self.const([axis + 1]), self.const([0]))
            )
        if form == 2:
            return str(self.op("Gather", shape, self.const([axis]), axis=0))
        scalar = self.op("Gather", shape, self.const(axis), axis=0)
        return str(self.op("Unsqueeze", scalar, self.const([0])))

    def scalar(self, vector: str) -> str:
        """The element of a vector of one element."""
        return str(self.op("Squeeze", vector, self.const([0])))

    def shape(self, *parts: int | str) -> str:
        """A shape of numbers and of vectors of one element."""
        if all(isinstance(part, int) for part in parts):
            return self.const(list(parts))
        vectors = [part if isinstance(part, str) else self.const([part]) for part in parts]
        return str(self.op("Concat", *vectors, axis=0))

    def reshape(self, x: str, *parts: int | str) -> str:
        """A reshape; 0 and -1 have ONNX's meaning."""
        return str(self.op("Reshape", x, self.shape(*parts)))

    def slice(self, x: str, axis: int, begin: Any, end: Any, step: int = 1) -> str:
        """Part of an axis; bounds are numbers or vectors of one element."""
        bounds = [each if isinstance(each, str) else self.const([each]) for each in (begin, end)]
        steps = [self.const([step])] if step != 1 else []
        return str(self.op("Slice", x, *bounds, self.const([axis]), *steps))

    def transpose(self, x: str, *perm: int) -> str:
        """A transpose."""
        return str(self.op("Transpose", x, perm=perm))

    # ------------------------------------------------------------ layers

    def activation(self, x: str) -> str:
        """Add a random activation, as one node or as primitive operators."""
        kind = self.one_of(*ACTIVATIONS)
        if kind == "gelu":
            half = self.op("Mul", x, self.const(np.float32(0.5)))
            erf = self.op("Erf", self.op("Div", x, self.const(np.float32(2**0.5))))
            return str(self.op("Mul", half, self.op("Add", erf, self.const(np.float32(1)))))
        if kind == "silu":
            return str(self.op("Mul", x, self.op("Sigmoid", x)))
        if kind == "mish":
            return str(self.op("Mul", x, self.op("Tanh", self.op("Softplus", x))))
        if kind == "Clip":
            return str(self.op("Clip", x, self.const(np.float32(-1)), self.const(np.float32(1))))
        return str(self.op(kind, x))

    def dense(self, x: str, given: int, made: int) -> str:
        """A dense layer over the last axis."""
        y = self.op("MatMul", x, self.weight(given, made, scale=given**-0.5))
        return str(self.op("Add", y, self.weight(made))) if self.chance(0.8) else str(y)

    def layer_norm(self, x: str, channels: int) -> str:
        """LayerNormalization over the last axis, or the nodes that it or RMSNorm consists of."""
        form = self.integer(0, 2)
        if form == 0:
            return str(
                self.op(
                    "LayerNormalization", x, self.weight(channels), self.weight(channels), axis=-1
                )
            )
        centered = x
        if form == 1:
            centered = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1], keepdims=1))
        variance = self.op("ReduceMean", self.op("Mul", centered, centered), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", variance, self.const(np.float32(1e-5))))
        return str(self.op("Mul", self.op("Div", centered, root), self.weight(channels)))

    def attention(self, q: str, k: str, v: str, width: int, mask: str | None = None) -> str:
        """Attention of (batch, heads, length, width), with a mask that is added."""
        scores = self.op("MatMul", q, self.transpose(k, 0, 1, 3, 2))
        scores = self.op("Mul", scores, self.const(np.float32(width**-0.5)))
        if mask is not None:
            scores = self.op("Add", scores, mask)
        return str(self.op("MatMul", self.op("Softmax", scores, axis=-1), v))

    def heads(self, x: str, count: int, width: int) -> str:
        """(batch, length, channels) as (batch, heads, length, width)."""
        form = self.integer(0, 2)
        if form == 0:
            split = self.reshape(x, 0, -1, count, width)
        elif form == 1:
            split = self.reshape(x, self.dim(x, 0), self.dim(x, 1), count, width)
        else:
            split = self.reshape(x, 0, 0, count, width)
        return self.transpose(split, 0, 2, 1, 3)

    def joined(self, x: str, channels: int) -> str:
        """(batch, heads, length, width) as (batch, length, channels)."""
        moved = self.transpose(x, 0, 2, 1, 3)
        if self.chance():
            return self.reshape(moved, 0, 0, channels)
        return self.reshape(moved, self.dim(moved, 0), self.dim(moved, 1), channels)

    # ------------------------------------------------------------ the model

    def model(self) -> onnx.ModelProto:
        """The network as a model; outputs have no types."""
        read = {name for node in self.nodes for name in _reads(node)}
        used = {name: each for name, each in self.inputs.items() if name in read}
        self.inputs = used
        symbols = {dim for each in used.values() for dim in each.dims}
        self.ordinary = {k: v for k, v in self.ordinary.items() if k in symbols}
        graph = helper.make_graph(
            self.nodes,
            "network",
            [_info(name, each.dtype, each.dims) for name, each in used.items()],
            [onnx.ValueInfoProto(name=name) for name in self.outputs],
            [
                numpy_helper.from_array(array, name)
                for name, array in self.weights.items()
                if name in read
            ],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10
        )

    def feed(self, sizes: dict[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Inputs of these sizes."""
        return {name: _values(each, sizes, rng) for name, each in self.inputs.items()}


def _values(each: Input, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    shape = [dim if isinstance(dim, int) else sizes[dim] for dim in each.dims]
    if each.dtype == "float32":
        return rng.standard_normal(shape).astype("float32")
    if each.dtype == "bool":
        return np.asarray(rng.random(shape) < 0.7)
    high = each.high if isinstance(each.high, int) else sizes[each.high]
    return rng.integers(each.least, max(high, each.least + 1), shape).astype(each.dtype)


def _reads(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those of its graphs too."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            names |= _reads(inner)
        names.update(value.name for value in attribute.g.output)
    return names


def _info(name: str, dtype: str, shape: Sequence[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)
    )
