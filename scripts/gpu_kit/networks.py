"""Small networks and single layers that the kit builds, besides the families and the six models."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm

from compiler import relay
from compiler.partition import Strategy, register

Layers = tuple[tvm.IRModule, dict[str, np.ndarray]]
"""A module and its inputs."""
ON_THE_CPU = "gpu_kit_on_the_cpu"


def small_network() -> Layers:
    """A convolution, a pool, a product and a softmax, with weights inside."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        values = rng.uniform(-1, 1, shape) * 3 / np.prod(shape[1:]) ** 0.5
        return relay.const(values.astype("float32"))

    x = relay.var("x", shape=(2, 3, 10, 10))
    y = relay.nn.conv2d(x, weight(6, 3, 3, 3), padding=(1, 1))
    y = relay.nn.relu(relay.nn.bias_add(y, weight(6)))
    y = relay.nn.max_pool2d(y, (2, 2), (2, 2))
    y = relay.nn.dense(relay.nn.batch_flatten(y), weight(7, 150))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.sqrt(relay.nn.softmax(y))))
    return mod, {"x": rng.uniform(-1, 1, (2, 3, 10, 10)).astype("float32")}


def register_on_the_cpu() -> None:
    """A back end that compiles softmax for the CPU."""

    def claim(graph_json: str, ids: Any, options: Any) -> None:
        for index, node in enumerate(json.loads(graph_json)["nodes"]):
            if node["op"] == "nn.softmax":
                ids[index] = -1

    def accept(*arguments: Any) -> bool:
        arguments[3]["target"] = "llvm"
        return True

    register(ON_THE_CPU, Strategy("softmax", claim, accept))


def library_layer(backend: str, dtype: str) -> Layers:
    """A layer for cuBLASLt or cuDNN, with bias and ReLU."""
    rng = np.random.default_rng(0)
    shape, weight = {"cublaslt": ((64, 96), (80, 96)), "cudnn": ((2, 16, 14, 14), (24, 16, 3, 3))}[
        backend
    ]
    x = relay.var("x", shape=shape, dtype=dtype)
    w, bias = (rng.uniform(-1, 1, s).astype(dtype) for s in (weight, weight[:1]))
    layer = relay.nn.dense if backend == "cublaslt" else relay.nn.conv2d
    y = relay.nn.relu(relay.nn.bias_add(layer(x, relay.const(w)), relay.const(bias)))
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    return mod, {"x": rng.uniform(-1, 1, shape).astype(dtype)}


@dataclass(frozen=True)
class Timed:
    """A layer whose time is compared with PyTorch's.

    Attributes
    ----------
    name : str
    layer : callable
        Variables of the inputs -> the result.
    shapes : list of tuple of int
        Of the inputs.
    torch : dict
        What `scripts.gpu_kit.on_device.torch_layers` computes: "op" and its options.
    dtypes : tuple of str
    """

    name: str
    layer: Callable[..., Any]
    shapes: list[tuple[int, ...]]
    torch: dict[str, Any]
    dtypes: tuple[str, ...] = ("float16", "tf32", "float32")
    flops: float = field(default=0.0)

    def module(self, dtype: str) -> tvm.IRModule:
        """The layer as a module with inputs x0, x1, ..."""
        stored = "float16" if dtype == "float16" else "float32"
        inputs = [
            relay.var(f"x{at}", shape=shape, dtype=stored) for at, shape in enumerate(self.shapes)
        ]
        return tvm.IRModule.from_expr(relay.Function(inputs, self.layer(*inputs)))


def _product(m: int, n: int, k: int) -> Timed:
    return Timed(
        f"product {m}x{n}x{k}",
        relay.nn.dense,
        [(m, k), (n, k)],
        {"op": "linear"},
        flops=2.0 * m * n * k,
    )


def _conv(n: int, c: int, size: int, out: int, window: int, stride: int = 1) -> Timed:
    pad = window // 2

    def layer(x: Any, w: Any) -> Any:
        return relay.nn.conv2d(
            x,
            w,
            strides=(stride, stride),
            padding=(pad, pad),
            channels=out,
            kernel_size=(window, window),
            data_layout="NHWC",
            kernel_layout="OHWI",
        )

    return Timed(
        f"conv {n}x{c}x{size}x{size} to {out}, {window}x{window} by {stride}",
        layer,
        [(n, size, size, c), (out, window, window, c)],
        {"op": "conv", "stride": stride, "padding": pad},
        flops=2.0 * n * (size // stride) ** 2 * out * c * window**2,
    )


def _attention(batch: int, heads: int, rows: int) -> Timed:
    shape = (batch * heads, rows, 64)

    def layer(q: Any, k: Any, v: Any) -> Any:
        scores = relay.nn.batch_matmul(q, k)
        return relay.nn.batch_matmul(relay.nn.softmax(scores), v, transpose_b=False)

    return Timed(
        f"attention {batch}x{heads}x{rows}x64",
        layer,
        [shape] * 3,
        {"op": "attention"},
        flops=4.0 * batch * heads * rows * rows * 64,
    )


def _layer_norm(x: Any) -> Any:
    return relay.nn.layer_norm(
        x, relay.const(np.ones(1024, "float32")), relay.const(np.zeros(1024, "float32"))
    )


def _rows(name: str, layer: Callable[..., Any], *shape: int) -> Timed:
    return Timed(f"{name} {'x'.join(map(str, shape))}", layer, [shape], {"op": name}, ("float32",))


TIMED = [
    _product(4096, 4096, 4096),
    _product(2048, 2048, 2048),
    _attention(8, 16, 1024),
    _conv(32, 256, 14, 256, 3),
    _product(128, 3072, 768),
    _conv(1, 64, 56, 64, 3),
    _product(1, 11008, 4096),
    _product(8192, 8192, 8192),
    _conv(32, 64, 56, 256, 1),
    _conv(32, 128, 28, 128, 3, 2),
    _attention(1, 12, 128),
    _rows("softmax", lambda x: relay.nn.softmax(x), 4096, 4096),
    _rows("layer_norm", _layer_norm, 4096, 1024),
]
"""The most telling first: what a limit of time cuts off is the end."""
