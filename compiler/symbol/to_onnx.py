"""A symbol and its parameters as an ONNX model, for inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from compiler.errors import FrontendError, UnsupportedOperatorError
from compiler.mxnet import attributes
from compiler.mxnet.graph import Graph, Node
from compiler.mxnet.operators import canonical, is_call

from .symbol import Symbol

OPSET = 17
IR_VERSION = 8
"""What onnxruntime reads since 1.15."""

Shape = tuple[int, ...]


def to_onnx(
    symbol: Symbol,
    params: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    dtype: str = "float32",
) -> ModelProto:
    """Export a symbol.

    Parameters
    ----------
    symbol : Symbol
        Subgraph nodes are replaced by their bodies.
    params : mapping of str to array
        Values of all variables but the inputs.
    shapes : mapping of str to tuple of int
        Shapes of the inputs.
    dtype : str
        Of the inputs.

    Returns
    -------
    onnx.ModelProto
        Opset 17; outputs have the names of `list_outputs`, repeated ones with a number.

    Raises
    ------
    UnsupportedOperatorError
        An operator that the exporter does not know.
    FrontendError
        A variable has neither a value nor a shape.
    """
    return _Exporter(symbol, params, shapes, dtype).run()


class _View:
    """What a converter sees of a node."""

    def __init__(self, exporter: _Exporter, node: Node, inputs: Sequence[str], output: str):
        self.exporter = exporter
        self.node = node
        self.inputs = list(inputs)
        self.output = output

    def get(self, key: str, parse: Callable[[str], Any], default: Any) -> Any:
        text = self.node.attrs.get(key)
        return default if text is None or attributes.is_none(text) else parse(text)

    def ints(self, key: str, default: Any = ()) -> tuple[int, ...]:
        return self.get(key, attributes.parse_int_tuple, default)

    def integer(self, key: str, default: Any = None) -> Any:
        return self.get(key, attributes.parse_int, default)

    def number(self, key: str, default: float) -> float:
        return self.get(key, attributes.parse_float, default)

    def flag(self, key: str, default: bool) -> bool:
        return self.get(key, attributes.parse_bool, default)

    def text(self, key: str, default: str = "") -> str:
        return self.get(key, str, default)

    def emit(self, op: str, inputs: Sequence[str], last: bool = True, **attrs: Any) -> str:
        """Add an ONNX node; the last one of a conversion gives the node's output."""
        name = self.output if last else self.exporter.fresh(self.node.name)
        self.exporter.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def constant(self, value: Any, dtype: str = "float32") -> str:
        name = self.exporter.fresh(self.node.name)
        array = np.asarray(value, dtype)
        self.exporter.constants.append(numpy_helper.from_array(array, name))
        return name

    def spatial(self, key: str, rank: int, default: int) -> list[int]:
        values = self.ints(key)
        return list(values) if values else [default] * rank

    def unsupported(self, why: str) -> UnsupportedOperatorError:
        return UnsupportedOperatorError(
            f"operator {self.node.op} of node {self.node.name!r} can't be exported: {why}"
        )


class _Exporter:
    def __init__(
        self, symbol: Symbol, params: Mapping[str, Any], shapes: Mapping[str, Shape], dtype: str
    ) -> None:
        self.symbol = symbol
        self.params = params
        self.shapes = shapes
        self.dtype = dtype
        self.nodes: list[Any] = []
        self.constants: list[TensorProto] = []
        self._names: set[str] = set()

    def fresh(self, wanted: str) -> str:
        """A name that no value has."""
        name, number = wanted, 0
        while name in self._names:
            number += 1
            name = f"{wanted}_{number}"
        self._names.add(name)
        return name

    def run(self) -> ModelProto:
        """Convert all nodes."""
        from compiler.relay.frontend.mxnet import infer_shapes

        graph = self.symbol.graph
        self._names |= set(self.symbol.list_inputs())
        values = {i: [n.name] for i, n in enumerate(graph.nodes) if n.is_variable}
        heads = self._graph(graph, values)
        given = {n: np.shape(self.params[n]) for n in self.symbol.list_inputs() if n in self.params}
        _, shapes = infer_shapes(self.symbol, {**given, **self.shapes}, self.dtype)
        outputs = []
        code = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        for head, name, shape in zip(heads, self.symbol.list_outputs(), shapes):
            title = self.fresh(name)
            self.nodes.append(helper.make_node("Identity", [head], [title]))
            outputs.append(helper.make_tensor_value_info(title, code, shape))
        inputs = []
        read = {name for node in self.nodes for name in node.input}
        for name in dict.fromkeys(self.symbol.list_inputs()):
            if name not in read:
                continue
            if name in self.params:
                array = np.asarray(self.params[name])
                self.constants.append(numpy_helper.from_array(array, name))
            elif name in self.shapes:
                inputs.append(helper.make_tensor_value_info(name, code, self.shapes[name]))
            else:
                raise FrontendError(f"give the shape or the value of {name!r}")
        made = helper.make_graph(self.nodes, "symbol", inputs, outputs, self.constants)
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(made, opset_imports=opset, ir_version=IR_VERSION)

    def _graph(self, graph: Graph, values: dict[int, list[str]]) -> list[str]:
        for index in graph.reachable():
            node = graph.nodes[index]
            if node.is_variable:
                continue
            inputs = [values[entry.node][entry.output] for entry in node.inputs]
            if is_call(node):
                body = node.subgraphs[0]
                variables = [i for i, n in enumerate(body.nodes) if n.is_variable]
                values[index] = self._graph(body, {i: [v] for i, v in zip(variables, inputs)})
                continue
            converter = _CONVERTERS.get(canonical(node.op))
            if converter is None:
                raise UnsupportedOperatorError(
                    f"operator {node.op} (node {node.name!r}) can't be exported"
                )
            values[index] = [self.fresh(f"{node.name}_0")]
            converter(_View(self, node, inputs, values[index][0]))
        return [values[head.node][head.output] for head in graph.heads]


def _plain(op: str, **attrs: Any) -> Callable[[_View], None]:
    def convert(view: _View) -> None:
        view.emit(op, view.inputs, **attrs)

    return convert


def _scalar(op: str, reverse: bool = False) -> Callable[[_View], None]:
    def convert(view: _View) -> None:
        number = view.constant(view.number("scalar", 1.0), view.exporter.dtype)
        data = view.inputs[0]
        view.emit(op, [number, data] if reverse else [data, number])

    return convert


def _convolution(view: _View) -> None:
    kernel = view.ints("kernel")
    rank = len(kernel)
    if view.text("layout", "NC").endswith("C"):
        raise view.unsupported("channels last")
    pads = view.spatial("pad", rank, 0)
    attrs: dict[str, Any] = {
        "kernel_shape": list(kernel),
        "strides": view.spatial("stride", rank, 1),
        "pads": [*pads, *pads],
        "dilations": view.spatial("dilate", rank, 1),
        "group": view.integer("num_group", 1),
    }
    if canonical(view.node.op) == "Deconvolution":
        attrs["output_padding"] = view.spatial("adj", rank, 0)
        view.emit("ConvTranspose", view.inputs, **attrs)
    else:
        view.emit("Conv", view.inputs, **attrs)


def _dense(view: _View) -> None:
    data = view.inputs[0]
    flat = view.flag("flatten", True)
    if flat:
        data = view.emit("Flatten", [data], last=False, axis=1)
        view.emit("Gemm", [data, *view.inputs[1:]], transB=1)
        return
    weight = view.emit("Transpose", [view.inputs[1]], last=False, perm=[1, 0])
    bias = len(view.inputs) > 2
    product = view.emit("MatMul", [data, weight], last=not bias)
    if bias:
        view.emit("Add", [product, view.inputs[2]])


def _batch_norm(view: _View) -> None:
    if view.integer("axis", 1) != 1:
        raise view.unsupported("an axis other than 1")
    data, gamma, beta, mean, var = view.inputs
    if view.flag("fix_gamma", True):
        size = np.asarray(view.exporter.params[mean]).shape
        gamma = view.constant(np.ones(size), view.exporter.dtype)
    view.emit(
        "BatchNormalization", [data, gamma, beta, mean, var], epsilon=view.number("eps", 1e-3)
    )


def _pooling(view: _View) -> None:
    kind = view.text("pool_type", "max")
    if kind not in ("max", "avg") or view.text("layout", "NC").endswith("C"):
        raise view.unsupported(f"pool_type {kind!r}, layout {view.text('layout')!r}")
    if view.flag("global_pool", False):
        view.emit("GlobalMaxPool" if kind == "max" else "GlobalAveragePool", view.inputs)
        return
    kernel = view.ints("kernel")
    pads = view.spatial("pad", len(kernel), 0)
    attrs: dict[str, Any] = {
        "kernel_shape": list(kernel),
        "strides": view.spatial("stride", len(kernel), 1),
        "pads": [*pads, *pads],
        "ceil_mode": int(view.text("pooling_convention", "valid") == "full"),
    }
    if kind == "avg":
        attrs["count_include_pad"] = int(view.flag("count_include_pad", True))
    view.emit("MaxPool" if kind == "max" else "AveragePool", view.inputs, **attrs)


_ACTIVATIONS = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "softrelu": "Softplus",
    "softsign": "Softsign",
}


def _activation(view: _View) -> None:
    kind = view.text("act_type")
    if kind not in _ACTIVATIONS:
        raise view.unsupported(f"act_type {kind!r}")
    view.emit(_ACTIVATIONS[kind], view.inputs)


def _leaky(view: _View) -> None:
    kind = view.text("act_type", "leaky")
    if kind == "leaky":
        view.emit("LeakyRelu", view.inputs, alpha=view.number("slope", 0.25))
    elif kind == "elu":
        view.emit("Elu", view.inputs, alpha=view.number("slope", 0.25))
    elif kind == "selu":
        view.emit("Selu", view.inputs)
    else:
        raise view.unsupported(f"act_type {kind!r}")


def _clip(view: _View) -> None:
    dtype = view.exporter.dtype
    bounds = [view.number(key, 0.0) for key in ("a_min", "a_max")]
    limits = [view.constant(b, dtype) if np.isfinite(b) else "" for b in bounds]
    view.emit("Clip", [view.inputs[0], *limits])


def _concat(axis_key: str, default: int) -> Callable[[_View], None]:
    def convert(view: _View) -> None:
        view.emit("Concat", view.inputs, axis=view.integer(axis_key, default))

    return convert


def _softmax(op: str) -> Callable[[_View], None]:
    def convert(view: _View) -> None:
        view.emit(op, view.inputs, axis=view.integer("axis", -1))

    return convert


def _transpose(view: _View) -> None:
    axes = view.ints("axes")
    attrs: dict[str, Any] = {"perm": list(axes)} if axes else {}
    view.emit("Transpose", view.inputs, **attrs)


def _layer_norm(view: _View) -> None:
    view.emit(
        "LayerNormalization",
        view.inputs,
        axis=view.integer("axis", -1),
        epsilon=view.number("eps", 1e-5),
    )


def _reduction(op: str) -> Callable[[_View], None]:
    def convert(view: _View) -> None:
        axes = list(view.ints("axis"))
        keep = int(view.flag("keepdims", False))
        if op == "ReduceSum":
            inputs = [view.inputs[0], *([view.constant(axes, "int64")] if axes else [])]
            view.emit(op, inputs, keepdims=keep)
        else:
            attrs: dict[str, Any] = {"axes": axes} if axes else {}
            view.emit(op, view.inputs, keepdims=keep, **attrs)

    return convert


def _reshape(view: _View) -> None:
    codes = view.ints("newshape")
    if any(code < -2 for code in codes):
        raise view.unsupported(f"the codes {codes}")
    shape = [0 if code == -2 else code for code in codes]
    view.emit("Reshape", [view.inputs[0], view.constant(shape, "int64")])


_CONVERTERS: dict[str, Callable[[_View], None]] = {
    "Convolution": _convolution,
    "Deconvolution": _convolution,
    "FullyConnected": _dense,
    "BatchNorm": _batch_norm,
    "Pooling": _pooling,
    "Activation": _activation,
    "LeakyReLU": _leaky,
    "clip": _clip,
    "Concat": _concat("dim", 1),
    "_npi_concatenate": _concat("axis", 0),
    "Flatten": _plain("Flatten", axis=1),
    "Dropout": _plain("Identity"),
    "_copy": _plain("Identity"),
    "identity": _plain("Identity"),
    "LayerNorm": _layer_norm,
    "softmax": _softmax("Softmax"),
    "_npx_softmax": _softmax("Softmax"),
    "log_softmax": _softmax("LogSoftmax"),
    "_npx_log_softmax": _softmax("LogSoftmax"),
    "transpose": _transpose,
    "_npi_transpose": _transpose,
    "_npx_reshape": _reshape,
    "_npi_matmul": _plain("MatMul"),
    "_npi_mean": _reduction("ReduceMean"),
    "_npi_sum": _reduction("ReduceSum"),
    "_npi_max": _reduction("ReduceMax"),
    "_npi_min": _reduction("ReduceMin"),
    **{
        name: _plain(op)
        for op, names in {
            "Add": ("_npi_add", "elemwise_add", "broadcast_add", "_plus"),
            "Sub": ("_npi_subtract", "elemwise_sub", "broadcast_sub"),
            "Mul": ("_npi_multiply", "elemwise_mul", "broadcast_mul"),
            "Div": ("_npi_true_divide", "elemwise_div", "broadcast_div"),
            "Relu": ("_npx_relu", "relu"),
            "Sigmoid": ("_npx_sigmoid", "sigmoid"),
            "Tanh": ("_npi_tanh", "tanh"),
            "Exp": ("_npi_exp", "exp"),
            "Log": ("_npi_log", "log"),
            "Sqrt": ("_npi_sqrt", "sqrt"),
            "Sin": ("_npi_sin", "sin"),
            "Cos": ("_npi_cos", "cos"),
            "Neg": ("_npi_negative", "negative"),
            "Abs": ("_npi_absolute", "abs"),
            "Erf": ("erf",),
        }.items()
        for name in names
    },
    **{
        name: _scalar(op, reverse)
        for op, names, reverse in (
            ("Add", ("_npi_add_scalar", "_plus_scalar"), False),
            ("Sub", ("_npi_subtract_scalar", "_minus_scalar"), False),
            ("Sub", ("_npi_rsubtract_scalar", "_rminus_scalar"), True),
            ("Mul", ("_npi_multiply_scalar", "_mul_scalar"), False),
            ("Div", ("_npi_true_divide_scalar", "_div_scalar"), False),
            ("Div", ("_npi_rtrue_divide_scalar", "_rdiv_scalar"), True),
            ("Pow", ("_npi_power_scalar", "_power_scalar"), False),
        )
        for name in names
    },
}
