"""Writers of the networks: Relay's builder, and one for each importer's format."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper

from compiler import relay
from compiler.mxnet.symbol import Symbol
from tests.compiler.relay.importers.networks import NETWORKS, WEIGHTS


class Builder:
    """Relay's builder; its layers are spelled as `from_onnx` spells them."""

    layout = "NCHW"
    epsilon = float(np.float32(1e-5))

    def __init__(self) -> None:
        self.channels = self.layout.index("C")

    def constant(self, name: str) -> Any:
        return relay.const(WEIGHTS[name])

    def conv(self, data, weight, bias="", padding=0, groups=1):
        value, kernel_layout = WEIGHTS[weight], "OIHW"
        if self.layout == "NHWC":
            kernel_layout = "HWIO" if groups == 1 else "HWOI"
            value = value.transpose([2, 3, *((1, 0) if groups == 1 else (0, 1))])
        made = relay.nn.conv2d(
            data,
            relay.const(np.ascontiguousarray(value)),
            padding=(padding, padding),
            groups=groups,
            channels=WEIGHTS[weight].shape[0],
            kernel_size=WEIGHTS[weight].shape[2:],
            data_layout=self.layout,
            kernel_layout=kernel_layout,
        )
        return relay.nn.bias_add(made, self.constant(bias), self.channels) if bias else made

    def batch_norm(self, data):
        values = [self.constant(name) for name in ("gamma", "beta", "mean", "variance")]
        return relay.nn.batch_norm(data, *values, axis=self.channels, epsilon=self.epsilon)[0]

    def scale_channels(self, data, weight):
        return relay.multiply(data, self.constant(weight))

    def relu(self, data):
        return relay.nn.relu(data)

    def sigmoid(self, data):
        return relay.sigmoid(data)

    def clip(self, data, low, high):
        return relay.clip(data, low, high)

    def pad(self, data, amount):
        widths = [(0, 0) if letter in "NC" else (amount, amount) for letter in self.layout]
        return relay.nn.pad(data, widths, 0.0)

    def max_pool(self, data, size):
        return relay.nn.max_pool2d(data, (size, size), (size, size), layout=self.layout)

    def global_pool(self, data):
        return relay.nn.global_avg_pool2d(data, layout=self.layout)

    def flatten(self, data):
        return relay.nn.batch_flatten(data)

    def concat(self, parts):
        return relay.concatenate(parts, self.channels)

    def dense(self, data, weight, bias=""):
        if data.ty.ndim == 2:
            return self.matrix_dense(data, self.constant(weight), bias)
        turned = relay.transpose(relay.const(WEIGHTS[weight].T.copy()), [1, 0])
        made = over_rows(data, lambda rows: self.matrix_dense(rows, turned))
        return relay.add(made, self.constant(bias)) if bias else made

    def matrix_dense(self, rows, weight, bias=""):
        made = relay.nn.dense(rows, weight, units=int(weight.ty.shape[0]))
        return relay.nn.bias_add(made, self.constant(bias)) if bias else made

    def matmul(self, left, right):
        (a, b, m, k), n = (int(each) for each in left.ty.shape.values), int(right.ty.shape[3])
        flat = relay.reshape(left, (a * b, m, k))
        turned = relay.transpose(relay.reshape(right, (a * b, k, n)), [0, 2, 1])
        return relay.reshape(relay.nn.batch_matmul(flat, turned), (a, b, m, n))

    def add(self, left, right):
        return relay.add(left, right)

    def multiply(self, left, right):
        return relay.multiply(left, right)

    def divide(self, data, number):
        return relay.divide(data, relay.const(np.float32(number)))

    def reshape(self, data, shape):
        return relay.reshape(data, shape)

    def transpose(self, data, axes):
        return relay.transpose(data, axes)

    def softmax(self, data):
        return relay.nn.softmax(data, axis=-1)

    def layer_norm(self, data):
        gamma, beta = self.constant("gamma"), self.constant("beta")
        return relay.nn.layer_norm(data, gamma, beta, axis=-1, epsilon=self.epsilon)

    def gelu(self, data):
        curve = relay.erf(relay.divide(data, relay.const(np.float32(np.sqrt(2)))))
        curve = relay.add(curve, relay.const(np.float32(1)))
        return relay.multiply(relay.multiply(data, curve), relay.const(np.float32(0.5)))


def over_rows(data: Any, change: Callable[[Any], Any]) -> Any:
    """What `change` makes of all rows of a tensor as one matrix, in the tensor's shape again."""
    *leading, width = (int(each) for each in data.ty.shape)
    result = change(relay.reshape(data, (int(np.prod(leading)), width)))
    return relay.reshape(result, (*leading, int(result.ty.shape[1])))


class MxnetSpelling(Builder):
    """A bias follows its product, and epsilons are numbers of 64 bits."""

    epsilon = 1e-5

    def dense(self, data, weight, bias=""):
        def change(rows):
            return self.matrix_dense(rows, self.constant(weight), bias)

        return change(data) if data.ty.ndim == 2 else over_rows(data, change)


class PytorchSpelling(Builder):
    """Weights lie as they were and are shared by their readers, and a bias comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: dict[str, Any] = {}

    def constant(self, name):
        return self.constants.setdefault(name, super().constant(name))

    def dense(self, data, weight, bias=""):
        if data.ty.ndim == 2:
            return self.matrix_dense(data, self.constant(weight), bias)
        made = over_rows(data, lambda rows: self.matrix_dense(rows, self.constant(weight)))
        return relay.add(self.constant(bias), made) if bias else made


class TfliteSpelling(Builder):
    """Images are NHWC; what TensorFlow's converter took apart stays so."""

    layout = "NHWC"

    def constant(self, name):
        return relay.const(WEIGHTS[name].ravel() if name == "pixels" else WEIGHTS[name])

    def batch_norm(self, data):
        scale, shift = batch_norm_factors()
        return relay.add(relay.multiply(data, relay.const(scale)), relay.const(shift))

    def global_pool(self, data):
        return relay.mean(data, [1, 2], keepdims=True)

    def flatten(self, data):
        return relay.reshape(data, (1, int(np.prod([int(each) for each in data.ty.shape]))))

    def dense(self, data, weight, bias=""):
        if data.ty.ndim == 2:
            return self.matrix_dense(data, self.constant(weight), bias)
        made = over_rows(data, lambda rows: self.matrix_dense(rows, self.constant(weight)))
        made = relay.add(made, self.constant(bias)) if bias else made
        return relay.reshape(made, [int(each) for each in made.ty.shape])

    def layer_norm(self, data):
        center = relay.mean(data, [2], keepdims=True)
        squares = relay.power(relay.subtract(data, center), relay.const(np.float32(2)))
        spread = relay.mean(squares, [2], keepdims=True)
        root = relay.rsqrt(relay.add(spread, relay.const(np.float32(1e-5))))
        normal = relay.multiply(relay.subtract(data, center), root)
        return relay.add(relay.multiply(normal, self.constant("gamma")), self.constant("beta"))

    def gelu(self, data):
        curve = relay.erf(relay.multiply(data, relay.const(np.float32(np.sqrt(0.5)))))
        half = relay.multiply(curve, relay.const(np.float32(0.5)))
        return relay.multiply(data, relay.add(relay.const(np.float32(0.5)), half))


def batch_norm_factors() -> tuple[np.ndarray, np.ndarray]:
    """The product and the sum that a batch norm is when its statistics are known."""
    scale = WEIGHTS["gamma"] / np.sqrt(WEIGHTS["variance"] + np.float32(1e-5))
    return scale, WEIGHTS["beta"] - WEIGHTS["mean"] * scale


class Onnx:
    """Nodes of an ONNX graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, np.ndarray] = {}

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def value(self, value: Any, name: str = "") -> str:
        name = name or f"constant_{len(self.initializers)}"
        self.initializers[name] = np.asarray(value)
        return name

    def constant(self, name: str) -> str:
        return self.value(WEIGHTS[name], name)

    def conv(self, data, weight, bias="", padding=0, groups=1):
        inputs = [self.constant(name) for name in (weight, bias) if name]
        window = {"kernel_shape": WEIGHTS[weight].shape[2:], "pads": [padding] * 4}
        return self.node("Conv", data, *inputs, group=groups, **window)

    def batch_norm(self, data):
        values = [self.constant(name) for name in ("gamma", "beta", "mean", "variance")]
        return self.node("BatchNormalization", data, *values, epsilon=1e-5)

    def scale_channels(self, data, weight):
        return self.node("Mul", data, self.constant(weight))

    def relu(self, data):
        return self.node("Relu", data)

    def sigmoid(self, data):
        return self.node("Sigmoid", data)

    def clip(self, data, low, high):
        return self.node("Clip", data, self.value(np.float32(low)), self.value(np.float32(high)))

    def pad(self, data, amount):
        return self.node("Pad", data, self.value([0, 0, amount, amount] * 2))

    def max_pool(self, data, size):
        return self.node("MaxPool", data, kernel_shape=[size, size], strides=[size, size])

    def global_pool(self, data):
        return self.node("GlobalAveragePool", data)

    def flatten(self, data):
        return self.node("Flatten", data)

    def concat(self, parts):
        return self.node("Concat", *parts, axis=1)

    def dense(self, data, weight, bias=""):
        if weight.endswith("scores"):  # over a matrix, with a bias
            return self.node("Gemm", data, self.constant(weight), self.constant(bias), transB=1)
        product = self.node("MatMul", data, self.value(WEIGHTS[weight].T, f"{weight}_t"))
        return self.node("Add", product, self.constant(bias)) if bias else product

    def matmul(self, left, right):
        return self.node("MatMul", left, right)

    def add(self, left, right):
        return self.node("Add", left, right)

    def multiply(self, left, right):
        return self.node("Mul", left, right)

    def divide(self, data, number):
        return self.node("Div", data, self.value(np.float32(number)))

    def reshape(self, data, shape):
        return self.node("Reshape", data, self.value(np.array(shape)))

    def transpose(self, data, axes):
        return self.node("Transpose", data, perm=axes)

    def softmax(self, data):
        return self.node("Softmax", data, axis=-1)

    def layer_norm(self, data):
        inputs = self.constant("gamma"), self.constant("beta")
        return self.node("LayerNormalization", data, *inputs, axis=-1, epsilon=1e-5)

    def gelu(self, data):
        return self.node("Gelu", data)

    def model(self, shape: tuple[int, ...], result: str) -> onnx.ModelProto:
        rank = 2 if len(shape) == 4 else len(shape)
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, [None] * rank)],
            [onnx.numpy_helper.from_array(v, name) for name, v in self.initializers.items()],
        )
        opsets = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class Mxnet:
    """Nodes of an MXNet symbol."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.args: dict[str, np.ndarray] = {}
        self.aux: dict[str, np.ndarray] = {}

    def node(self, kind: str, *inputs: int, **attributes: Any) -> int:
        name = f"{kind.strip('_').lower()}{len(self.nodes)}"
        text = {key: str(value) for key, value in attributes.items()}
        links = [[each, 0, 0] for each in inputs]
        self.nodes.append({"op": kind, "name": name, "inputs": links, "attrs": text})
        return len(self.nodes) - 1

    def variable(self, name: str) -> int:
        self.nodes.append({"op": "null", "name": name, "inputs": []})
        return len(self.nodes) - 1

    def value(self, name: str, value: np.ndarray, state: bool = False) -> int:
        name = f"{name}{len(self.nodes)}"
        (self.aux if state else self.args)[name] = value
        return self.variable(name)

    def constant(self, name: str, state: bool = False) -> int:
        return self.value(name, WEIGHTS[name], state)

    def conv(self, data, weight, bias="", padding=0, groups=1):
        inputs = [self.constant(name) for name in (weight, bias) if name]
        filters, _, *kernel = WEIGHTS[weight].shape
        return self.node(
            "Convolution",
            data,
            *inputs,
            kernel=tuple(kernel),
            pad=(padding, padding),
            num_filter=filters,
            num_group=groups,
            no_bias=not bias,
        )

    def batch_norm(self, data):
        values = [self.constant("gamma"), self.constant("beta")]
        values += [self.constant("mean", True), self.constant("variance", True)]
        return self.node("BatchNorm", data, *values, eps=1e-5, fix_gamma=False)

    def scale_channels(self, data, weight):
        return self.node("broadcast_mul", data, self.constant(weight))

    def relu(self, data):
        return self.node("Activation", data, act_type="relu")

    def sigmoid(self, data):
        return self.node("Activation", data, act_type="sigmoid")

    def clip(self, data, low, high):
        return self.node("clip", data, a_min=low, a_max=high)

    def pad(self, data, amount):
        widths = (0, 0, 0, 0, *[amount] * 4)
        return self.node("Pad", data, mode="constant", pad_width=widths, constant_value=0)

    def max_pool(self, data, size):
        window = {"kernel": (size, size), "stride": (size, size)}
        return self.node("Pooling", data, pool_type="max", **window)

    def global_pool(self, data):
        return self.node("Pooling", data, pool_type="avg", global_pool=True, kernel=(1, 1))

    def flatten(self, data):
        return self.node("Flatten", data)

    def concat(self, parts):
        return self.node("Concat", *parts, dim=1, num_args=len(parts))

    def dense(self, data, weight, bias=""):
        inputs = [self.constant(name) for name in (weight, bias) if name]
        units = WEIGHTS[weight].shape[0]
        return self.node(
            "FullyConnected", data, *inputs, num_hidden=units, no_bias=not bias, flatten=False
        )

    def matmul(self, left, right):
        return self.node("_npi_matmul", left, right)

    def add(self, left, right):
        return self.node("elemwise_add", left, right)

    def multiply(self, left, right):
        return self.node("broadcast_mul", left, right)

    def divide(self, data, number):
        return self.node("_div_scalar", data, scalar=number)

    def reshape(self, data, shape):
        return self.node("Reshape", data, shape=shape)

    def transpose(self, data, axes):
        return self.node("transpose", data, axes=axes)

    def softmax(self, data):
        return self.node("softmax", data, axis=-1)

    def layer_norm(self, data):
        inputs = self.constant("gamma"), self.constant("beta")
        return self.node("LayerNorm", data, *inputs, axis=-1, eps=1e-5)

    def gelu(self, data):
        return self.node("LeakyReLU", data, act_type="gelu")

    def symbol(self, result: int) -> Symbol:
        variables = [i for i, node in enumerate(self.nodes) if node["op"] == "null"]
        graph = {"nodes": self.nodes, "arg_nodes": variables, "heads": [[result, 0, 0]]}
        return Symbol.loads(json.dumps(graph))


class Torch:
    """Calls of PyTorch, traced while they run."""

    def __init__(self, torch: Any, parameters: Any) -> None:
        self.torch, self.nn, self.parameters = torch, torch.nn.functional, parameters

    def constant(self, name: str) -> Any:
        return self.parameters[name] if name else None

    def conv(self, data, weight, bias="", padding=0, groups=1):
        given = self.constant(weight), self.constant(bias)
        return self.nn.conv2d(data, *given, padding=padding, groups=groups)

    def batch_norm(self, data):
        values = [self.constant(name) for name in ("mean", "variance", "gamma", "beta")]
        return self.nn.batch_norm(data, *values, eps=1e-5)

    def scale_channels(self, data, weight):
        return data * self.constant(weight)

    def relu(self, data):
        return self.torch.relu(data)

    def sigmoid(self, data):
        return self.torch.sigmoid(data)

    def clip(self, data, low, high):
        return self.nn.hardtanh(data, low, high)

    def pad(self, data, amount):
        return self.nn.pad(data, (amount,) * 4)

    def max_pool(self, data, size):
        return self.nn.max_pool2d(data, size)

    def global_pool(self, data):
        return self.nn.adaptive_avg_pool2d(data, 1)

    def flatten(self, data):
        return self.torch.flatten(data, 1)

    def concat(self, parts):
        return self.torch.cat(parts, 1)

    def dense(self, data, weight, bias=""):
        return self.nn.linear(data, self.constant(weight), self.constant(bias))

    def matmul(self, left, right):
        return self.torch.matmul(left, right)

    def add(self, left, right):
        return left + right

    def multiply(self, left, right):
        return left * right

    def divide(self, data, number):
        return data / number

    def reshape(self, data, shape):
        return data.reshape(shape)

    def transpose(self, data, axes):
        return data.permute(axes)

    def softmax(self, data):
        return self.torch.softmax(data, -1)

    def layer_norm(self, data):
        return self.nn.layer_norm(data, (8,), self.constant("gamma"), self.constant("beta"))

    def gelu(self, data):
        return self.nn.gelu(data)


class Tflite:
    """Operators of a TensorFlow Lite model, whose images are NHWC."""

    SAME, VALID = 0, 1

    def __init__(self, model: Any) -> None:
        self.model = model
        self.shapes: dict[int, tuple[int, ...]] = {}

    def tensor(self, shape: tuple[int, ...], name: str = "") -> int:
        made = self.model.tensor(name or f"t{len(self.shapes)}", shape)
        self.shapes[made] = tuple(shape)
        return made

    def value(self, value: np.ndarray, name: str = "") -> int:
        return self.model.constant(name or f"c{len(self.shapes)}", np.array(value, order="C"))

    def node(
        self, kind: str, inputs: list[int], shape: tuple[int, ...], table: str = "", **options: Any
    ) -> int:
        result = self.tensor(shape)
        self.model.operator(kind, inputs, [result], f"{table or 'Add'}Options", **options)
        return result

    def same(self, kind: str, *inputs: int, table: str = "", **options: Any) -> int:
        """An operator whose result has the shape of its largest operand."""
        shape = max((self.shapes[each] for each in inputs if each in self.shapes), key=np.prod)
        return self.node(kind, list(inputs), shape, table, **options)

    def conv(self, data, weight, bias="", padding=0, groups=1):
        value = WEIGHTS[weight]
        n, height, width, _ = self.shapes[data]
        lost = 0 if padding else value.shape[2] - 1
        shape = (n, height - lost, width - lost, value.shape[0])
        options = {"Padding": self.SAME if padding else self.VALID, "StrideH": 1, "StrideW": 1}
        options |= {"DilationHFactor": 1, "DilationWFactor": 1}
        biases = [self.value(WEIGHTS[bias])] if bias else []
        if groups == 1:
            inputs = [data, self.value(value.transpose(0, 2, 3, 1)), *biases]
            return self.node("CONV_2D", inputs, shape, "Conv2D", **options)
        inputs = [data, self.value(value.transpose(1, 2, 3, 0)), *biases]
        options["DepthMultiplier"] = 1
        return self.node("DEPTHWISE_CONV_2D", inputs, shape, "DepthwiseConv2D", **options)

    def batch_norm(self, data):
        """As TensorFlow's converter leaves it: a product and a sum."""
        scale, shift = batch_norm_factors()
        product = self.same("MUL", data, self.value(scale), table="Mul")
        return self.same("ADD", product, self.value(shift))

    def scale_channels(self, data, weight):
        return self.same("MUL", data, self.value(WEIGHTS[weight].ravel()), table="Mul")

    def relu(self, data):
        return self.same("RELU", data)

    def sigmoid(self, data):
        return self.same("LOGISTIC", data)

    def clip(self, data, low, high):
        assert (low, high) == (0.0, 6.0)
        return self.same("RELU6", data)

    def pad(self, data, amount):
        n, height, width, channels = self.shapes[data]
        widths = np.array([(0, 0), (amount, amount), (amount, amount), (0, 0)], "int32")
        shape = (n, height + 2 * amount, width + 2 * amount, channels)
        return self.node("PAD", [data, self.value(widths)], shape, "Pad")

    def max_pool(self, data, size):
        n, height, width, channels = self.shapes[data]
        options = {"FilterHeight": size, "FilterWidth": size, "StrideH": size, "StrideW": size}
        shape = (n, height // size, width // size, channels)
        return self.node("MAX_POOL_2D", [data], shape, "Pool2D", Padding=self.VALID, **options)

    def global_pool(self, data):
        n, _, _, channels = self.shapes[data]
        axes = self.value(np.array([1, 2], "int32"))
        return self.node("MEAN", [data, axes], (n, 1, 1, channels), "Reducer", KeepDims=True)

    def flatten(self, data):
        return self.reshape(data, (1, int(np.prod(self.shapes[data]))))

    def concat(self, parts):
        shapes = [self.shapes[each] for each in parts]
        shape = (*shapes[0][:3], sum(each[3] for each in shapes))
        return self.node("CONCATENATION", parts, shape, "Concatenation", Axis=3)

    def dense(self, data, weight, bias=""):
        value = WEIGHTS[weight]
        shape = (*self.shapes[data][:-1], value.shape[0])
        inputs = [data, self.value(value), self.value(WEIGHTS[bias]) if bias else -1]
        options = {"KeepNumDims": len(shape) > 2}
        return self.node("FULLY_CONNECTED", inputs, shape, "FullyConnected", **options)

    def matmul(self, left, right):
        shape = (*self.shapes[left][:3], self.shapes[right][3])
        return self.node("BATCH_MATMUL", [left, right], shape, "BatchMatMul")

    def add(self, left, right):
        return self.same("ADD", left, right)

    def multiply(self, left, right):
        return self.same("MUL", left, right, table="Mul")

    def divide(self, data, number):
        return self.same("DIV", data, self.value(np.float32(number)), table="Div")

    def reshape(self, data, shape):
        given = self.value(np.array(shape, "int32"))
        return self.node("RESHAPE", [data, given], shape, "Reshape", NewShape=list(shape))

    def transpose(self, data, axes):
        shape = tuple(self.shapes[data][axis] for axis in axes)
        order = self.value(np.array(axes, "int32"))
        return self.node("TRANSPOSE", [data, order], shape, "Transpose")

    def softmax(self, data):
        return self.same("SOFTMAX", data, table="Softmax", Beta=1.0)

    def layer_norm(self, data):
        """As TensorFlow's converter leaves it: means, a square root, a product and a sum."""
        shape = (*self.shapes[data][:-1], 1)

        def mean(value: int) -> int:
            axes = self.value(np.array([2], "int32"))
            return self.node("MEAN", [value, axes], shape, "Reducer", KeepDims=True)

        center = mean(data)
        centerd = self.same("SUB", data, center, table="Sub")
        spread = mean(self.same("SQUARED_DIFFERENCE", data, center, table="SquaredDifference"))
        spread = self.same("ADD", spread, self.value(np.float32(1e-5)))
        normal = self.same("MUL", centerd, self.same("RSQRT", spread), table="Mul")
        scaled = self.same("MUL", normal, self.value(WEIGHTS["gamma"]), table="Mul")
        return self.same("ADD", scaled, self.value(WEIGHTS["beta"]))

    def gelu(self, data):
        return self.same("GELU", data, table="Gelu", Approximate=False)


def built(name: str, spelling: type[Builder] = Builder) -> tvm.IRModule:
    """The network as a script of Relay's builder has it."""
    network, shape = NETWORKS[name]
    x = relay.var("x", shape=shape_in(shape, spelling.layout))
    return tvm.IRModule.from_expr(relay.Function([x], network(spelling(), x)))


def shape_in(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    if len(shape) != 4:
        return shape
    return tuple(shape["NCHW".index(letter)] for letter in layout)


def onnx_model(name: str) -> onnx.ModelProto:
    network, shape = NETWORKS[name]
    writer = Onnx()
    return writer.model(shape, network(writer, "x"))


def from_onnx(name: str) -> tvm.IRModule:
    return relay.frontend.from_onnx(onnx_model(name))[0]


def from_mxnet(name: str) -> tvm.IRModule:
    network, shape = NETWORKS[name]
    writer = Mxnet()
    symbol = writer.symbol(network(writer, writer.variable("x")))
    mod, params = relay.frontend.from_mxnet(
        symbol, {"x": shape}, arg_params=writer.args, aux_params=writer.aux
    )
    return bound(mod, params)


def from_pytorch(name: str) -> tvm.IRModule:
    import torch

    network, shape = NETWORKS[name]

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for key, value in WEIGHTS.items():
                self.register_buffer(key, torch.from_numpy(value))

        def forward(self, data: Any) -> Any:
            return network(Torch(torch, dict(self.named_buffers())), data)

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Network().eval(), torch.zeros(shape), check_trace=False)
    mod, params = relay.frontend.from_pytorch(traced, [("x", shape)])
    return bound(mod, params)


def from_tflite(name: str) -> tvm.IRModule:
    path = Path(__file__).parent.parent / "frontend" / "tflite" / "model_writer.py"
    spec = importlib.util.spec_from_file_location("model_writer", path)
    assert spec is not None and spec.loader is not None
    written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(written)
    network, shape = NETWORKS[name]
    writer = Tflite(written.ModelWriter())
    data = writer.tensor(shape_in(shape, "NHWC"), "x")
    result = network(writer, data)
    return relay.frontend.from_tflite(writer.model.finish([data], [result]))[0]


def bound(mod: tvm.IRModule, params: dict[str, Any]) -> tvm.IRModule:
    """The module with its weights as constants."""
    from compiler.lowering.bind import bind_params

    return bind_params(mod, params)[0]


IMPORTERS: dict[str, tuple[Callable[[str], tvm.IRModule], type[Builder]]] = {
    "onnx": (from_onnx, Builder),
    "mxnet": (from_mxnet, MxnetSpelling),
    "pytorch": (from_pytorch, PytorchSpelling),
    "tflite": (from_tflite, TfliteSpelling),
}
"""Each importer's way to a network, and the builder that spells it so. Weights are constants."""
