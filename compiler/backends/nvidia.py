"""The partitioners `cublaslt` and `cudnn`: layers that NVIDIA's libraries compute as one call.

A subgraph is an anchor, a product or a convolution, with what the library does along with it: the
transposition of an operand, reshapes that leave the rows of the result alone, a bias, a relu. Each
has a number of its own, so that no two become one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from compiler.errors import BuildError
from compiler.precision import TO_TF32

from .graph import VARIABLE
from .reasons import Unsupported
from .registry import Options, Strategy, register

if TYPE_CHECKING:
    import numpy as np
    from tvm import IRModule

    from compiler.runtime.foreign import ExternalCode

WORKSPACE = 32 << 20
"""Bytes that a library may work in: what NVIDIA advises for Hopper. Calls share them."""

_PRODUCTS = ("nn.dense", "nn.matmul", "nn.batch_matmul")
_FLOATS = ("float32", "float16", "bfloat16")
_LAYOUTS = {"NCHW": "OIHW", "NHWC": "OHWI"}


def register_nvidia() -> None:
    for name, objection, compile_ in (
        ("cublaslt", _objection_to_product, _compile_product),
        ("cudnn", _objection_to_convolution, _compile_convolution),
    ):
        strategy = Strategy("layers", _claiming(objection), None, f"_{name}_subgraph")
        register(name, strategy, compile=compile_, device="cuda", options=["ops"])


class _Node:
    """One node of a graph's JSON, as numbers."""

    def __init__(self, graph: _Graph, index: int, json_node: Mapping[str, Any]) -> None:
        self._graph = graph
        self.index = index
        self.op = str(json_node["op"])
        self.attrs: Mapping[str, str] = json_node.get("attrs", {})
        self.inputs = [entry[0] for entry in json_node["inputs"]]
        self.readers: list[int] = []

    @property
    def dtype(self) -> str:
        return self.attrs.get("dtype", "")

    @property
    def shape(self) -> tuple[int, ...] | None:
        """None unless all extents are known."""
        text = self.attrs.get("shape", "")
        extents = text.strip("[]").split(",") if text.startswith("[") else [""]
        known = all(extent.strip().isdigit() for extent in extents)
        return tuple(map(int, extents)) if known else None

    def numbers(self, name: str) -> list[int]:
        """An attribute that is a number, or a list of numbers."""
        return [int(each) for each in self.attrs[name].strip("[]()").split(",") if each.strip()]

    def flag(self, name: str) -> bool:
        return self.attrs.get(name) == "True"

    def input(self, position: int) -> _Node:
        return self._graph.nodes[self.inputs[position]]

    def only_reader(self) -> _Node | None:
        """The one node that reads the result, if nothing else does."""
        if len(self.readers) != 1 or self.index in self._graph.heads:
            return None
        return self._graph.nodes[self.readers[0]]


class _Graph:
    """The nodes of a graph's JSON, and who reads them."""

    def __init__(self, graph_json: str) -> None:
        graph = json.loads(graph_json)
        self.nodes = [_Node(self, index, node) for index, node in enumerate(graph["nodes"])]
        self.heads = {entry[0] for entry in graph["heads"]}
        for node in self.nodes:
            for producer in node.inputs:
                self.nodes[producer].readers.append(node.index)


@dataclass
class _Layer:
    """One subgraph that becomes one call of a library."""

    anchor: _Node
    operands: list[_Node]  # of the anchor, before they are transposed
    flipped: list[bool]  # which of them are transposed on the way to the anchor
    nodes: list[_Node]  # all that are part of it
    bias: _Node | None = None
    relu: bool = False


Objection = Callable[[_Node], str]
"""Why a library does not compute an anchor; "" if it does."""


def _claiming(objection: Objection) -> Callable[[str, list[Any], Options], None]:
    def supported_ops(graph_json: str, ids: list[Any], options: Options) -> None:
        graph = _Graph(graph_json)
        objections = map(objection, graph.nodes)
        ids[:] = [Unsupported(text) if text else -2 for text in objections]
        for number, layer in enumerate(_layers(graph, objection)):
            for node in layer.nodes:
                ids[node.index] = number

    return supported_ops


def _layers(graph: _Graph, objection: Objection) -> Iterator[_Layer]:
    taken = set[int]()
    for anchor in graph.nodes:
        if anchor.op == VARIABLE or "baton.backend" in anchor.attrs or objection(anchor):
            continue
        layer = _Layer(anchor, [], [], [anchor])
        for position in range(2):
            operand = anchor.input(position)
            flipped = _reads_transposed(anchor, operand)
            layer.flipped.append(flipped)
            layer.operands.append(operand.input(0) if flipped else operand)
            layer.nodes += [operand] if flipped else []
        _add_epilogue(layer, taken)
        taken |= {node.index for node in layer.nodes}
        yield layer


def _reads_transposed(anchor: _Node, operand: _Node) -> bool:
    """Whether the library can read an operand in front of its transposition."""
    if anchor.op not in _PRODUCTS or operand.op != "transpose" or operand.dtype == "int8":
        return False
    axes = operand.numbers("axes") if "axes" in operand.attrs else []
    matrices = [0, 2, 1] if anchor.op == "nn.batch_matmul" else [1, 0]
    return axes == matrices and operand.only_reader() is anchor


def _add_epilogue(layer: _Layer, taken: set[int]) -> None:
    """Take along what the library does to the result, in its order."""
    node, pending = layer.anchor, list[_Node]()
    if node.attrs.get("out_dtype") == "int32":
        return
    channel = _channel_axis(layer.anchor)
    extent = (node.shape or (0,))[channel]
    while (reader := node.only_reader()) is not None and reader.index not in taken:
        if channel == -1 and reader.op == "reshape" and (reader.shape or (0,))[-1] == extent:
            pending.append(reader)  # only if something follows that the library does
        elif not layer.relu and layer.bias is None and (bias := _bias(reader, node, channel)):
            layer.bias = bias
            layer.nodes += [*pending, reader]
            pending = []
        elif not layer.relu and reader.op == "nn.relu" and _has_relu(layer):
            layer.relu = True
            layer.nodes += [*pending, reader]
            pending = []
        else:
            return
        node = reader


def _has_relu(layer: _Layer) -> bool:
    """Whether the library has a relu behind what the layer is so far; cuDNN's call adds a bias."""
    return layer.anchor.op in _PRODUCTS or layer.bias is not None


def _channel_axis(anchor: _Node) -> int:
    """Which axis of the result has the numbers of a bias, counted from the end."""
    return -3 if anchor.attrs.get("data_layout") == "NCHW" else -1


def _bias(reader: _Node, value: _Node, channel: int) -> _Node | None:
    """What `reader` adds to the value, if that is a number for each channel."""
    if reader.op not in ("nn.bias_add", "add") or len(reader.inputs) != 2:
        return None
    other = reader.input(1) if reader.inputs[0] == value.index else reader.input(0)
    shape, rank = value.shape, len(value.shape or ())
    if shape is None or other.shape is None or other.dtype != value.dtype or other is value:
        return None
    if reader.op == "nn.bias_add":
        axis = int(reader.attrs.get("axis", "1"))
        return other if (axis if axis < 0 else axis - rank) == channel else None
    wanted = [1] * rank
    wanted[channel] = shape[channel]
    padded = [1] * (rank - len(other.shape)) + list(other.shape)
    return other if padded == wanted else None


def _objection_to_product(node: _Node) -> str:
    """Why cuBLASLt does not compute an operator as a product."""
    if node.op not in _PRODUCTS:
        return f"{node.op} is no matmul, nor computed along with one"
    shapes = [node.shape, *(node.input(position).shape for position in range(2))]
    if any(shape is None or 0 in shape for shape in shapes):
        return "a shape is dynamic, or has an extent of 0"
    dtypes = {node.input(position).dtype for position in range(2)}
    out = node.attrs.get("out_dtype", "")
    if dtypes == {"int8"} and out == "int32":
        # Tensor cores take bytes four at a time, with k innermost in both.
        flips = [node.op != "nn.dense" and node.flag("transpose_a"), not _transposed_b(node)]
        k, n = (node.input(1).shape or ())[-1], (node.shape or ())[-1]
        fits = not any(flips) and k % 4 == 0 and n % 4 == 0
        return "" if fits else "int8 needs plain x @ w.T with k and n divisible by 4"
    return _objection_to_dtypes(dtypes, out)


def _objection_to_dtypes(dtypes: set[str], out: str) -> str:
    if len(dtypes) == 1 and dtypes <= set(_FLOATS) and out in ("", "None", *dtypes):
        return ""
    found = " x ".join(sorted(dtypes)) + (f" -> {out}" if out not in ("", "None") else "")
    return f"dtypes are {found}; one of {', '.join(_FLOATS)} works"


def _transposed_b(node: _Node) -> bool:
    return node.op == "nn.dense" or node.flag("transpose_b")


def _objection_to_convolution(node: _Node) -> str:
    """Why cuDNN does not compute an operator as a convolution."""
    if node.op != "nn.conv2d":
        return f"{node.op} is no nn.conv2d, nor computed along with one"
    if None in (node.shape, node.input(0).shape, node.input(1).shape):
        return "a shape is dynamic"
    layout, dtypes = node.attrs["data_layout"], {node.input(0).dtype, node.input(1).dtype}
    top, left, bottom, right = _sides(node)
    layouts = layout, node.attrs["kernel_layout"], node.attrs.get("out_layout")
    if _LAYOUTS.get(layout) != layouts[1] or layouts[2] not in ("", "None", None, layout):
        return f"layouts are {', '.join(map(str, layouts))}; NCHW, OIHW and NHWC, OHWI work"
    if (top, left) != (bottom, right):
        return f"padding is {[top, left, bottom, right]}; it must be the same on both sides"
    return _objection_to_dtypes(dtypes, node.attrs.get("out_dtype", ""))


def _sides(node: _Node) -> list[int]:
    """Padding of top, left, bottom, right."""
    padding = node.numbers("padding")
    return padding if len(padding) == 4 else (padding * 2 if len(padding) == 2 else padding * 4)


def _only_layer(subgraph: IRModule, objection: Objection) -> _Layer:
    """The layer that a claimed subgraph is; its variables are the function's parameters."""
    from compiler.ir.dataflow_graph import RelaxFunction

    from .relax_graph import RelaxGraph

    (gvar,) = subgraph.get_global_vars()
    graph = _Graph(RelaxGraph(RelaxFunction(subgraph, gvar.name_hint), None).graph.to_json())
    layers = list(_layers(graph, objection))
    operations = [node for node in graph.nodes if node.op != VARIABLE]
    if len(layers) != 1 or len(layers[0].nodes) != len(operations):
        names = ", ".join(node.op for node in operations)
        raise BuildError(f"{names} is not one layer that the library computes")
    return layers[0]


def _code(runtime: str, description: Any) -> ExternalCode:
    from compiler.runtime.foreign import ExternalCode

    return ExternalCode(runtime, json.dumps(asdict(description)).encode(), workspace=WORKSPACE)


def _tf32() -> bool:
    import tvm

    context = tvm.transform.PassContext.current()
    return TO_TF32 in context.required_pass and TO_TF32 not in context.disabled_pass


def _compile_product(
    subgraph: IRModule, params: Mapping[str, np.ndarray], options: Options
) -> ExternalCode:
    from compiler.runtime.nvidia.cublaslt import Factor, Product

    layer = _only_layer(subgraph, _objection_to_product)
    anchor, shape = layer.anchor, layer.anchor.shape or ()
    batched = anchor.op == "nn.batch_matmul"
    a_is_flipped = anchor.op != "nn.dense" and anchor.flag("transpose_a")
    flips = (layer.flipped[0] != a_is_flipped, layer.flipped[1] != _transposed_b(anchor))
    factors = [
        Factor(operand.index, flipped, (operand.shape or ())[0] if batched else 1)
        for operand, flipped in zip(layer.operands, flips)
    ]
    batch, *rows = shape[:-1] if batched else (1, *shape[:-1])
    first = anchor.input(0).shape or ()
    dtype = layer.operands[0].dtype
    floats = "tf32" if dtype == "float32" and _tf32() else "float32"
    product = Product(
        batch=batch,
        m=math.prod(rows),
        n=shape[-1],
        k=first[-2] if a_is_flipped else first[-1],
        a=factors[0],
        b=factors[1],
        dtype=dtype,
        out_dtype="int32" if dtype == "int8" else dtype,
        compute="int32" if dtype == "int8" else floats,
        bias=None if layer.bias is None else layer.bias.index,
        relu=layer.relu,
    )
    return _code("cublaslt", product)


def _compile_convolution(
    subgraph: IRModule, params: Mapping[str, np.ndarray], options: Options
) -> ExternalCode:
    from compiler.runtime.nvidia.cudnn import Convolution

    layer = _only_layer(subgraph, _objection_to_convolution)
    anchor, layout = layer.anchor, layer.anchor.attrs["data_layout"]
    data, weights = layer.operands
    dtype = data.dtype
    x, w, y = (_channels_first(node.shape or (), layout) for node in (data, weights, anchor))
    convolution = Convolution(
        x=x,
        w=w,
        y=y,
        layout=layout,
        strides=anchor.numbers("strides"),
        padding=_sides(anchor)[:2],
        dilation=anchor.numbers("dilation"),
        groups=int(anchor.attrs["groups"]),
        dtype=dtype,
        tf32=dtype == "float32" and _tf32(),
        at=[data.index, weights.index],
        bias=None if layer.bias is None else layer.bias.index,
        relu=layer.relu,
    )
    return _code("cudnn", convolution)


def _channels_first(shape: tuple[int, ...], layout: str) -> list[int]:
    """The extents of data or weights in cuDNN's order, which is the same for both layouts."""
    first, *rest = shape
    return [first, *rest] if layout == "NCHW" else [first, rest[-1], *rest[:-1]]
