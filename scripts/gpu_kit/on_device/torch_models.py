"""PyTorch's counterparts of the kit's layers and models, with the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from scripts.gpu_kit.on_device import cases

# ONNX's numbers of types
_DTYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16}


def layer(how: dict[str, Any]) -> Callable[..., Any]:
    """The layer of a timed case: tensors as Baton gets them -> the result."""
    name = how["op"]
    if name == "linear":
        return functional.linear
    if name == "attention":
        return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, scale=1.0)
    if name == "softmax":
        return lambda x: functional.softmax(x, -1)
    if name == "layer_norm":
        return lambda x: functional.layer_norm(x, x.shape[-1:], eps=1e-5)
    assert name == "conv", name

    def conv(x: Any, w: Any) -> Any:
        moved = (each.permute(0, 3, 1, 2) for each in (x, w))  # both have their channels last
        found = functional.conv2d(*moved, stride=how["stride"], padding=how["padding"])
        return found.permute(0, 2, 3, 1)

    return conv


def network(case: str, half: bool, device: str = "cuda") -> tuple[Any, list[Any]]:
    """One of the six models as a torch.fx module, and its inputs, on a device.

    Floats are half where `half` says so. Images and weights of convolutions have their channels
    last, which is what cuDNN is fastest with.
    """
    described = json.loads((cases.FOLDER / f"{case}.graph.json").read_text())
    inputs, _ = cases.values(case)
    graph = torch.fx.Graph()
    root = torch.nn.Module()
    known: dict[str, Any] = {name: graph.placeholder(name) for name in described["inputs"]}
    constants = cases.sources(case)
    for node in described["nodes"]:
        arguments = []
        for position, name in enumerate(node["inputs"]):
            if name in constants and (node["op"], position) in _SHAPES:
                arguments.append(constants[name].tolist())
                continue
            if name and name not in known:
                slot = f"weight{len(known)}"
                root.register_buffer(slot, _tensor(constants[name], half, device))
                known[name] = graph.get_attr(slot)
            arguments.append(known[name] if name else None)
        function = _OPS[node["op"]]
        attributes = dict(node["attributes"])
        if node["op"] == "Cast" and half and attributes["to"] == 1:
            attributes["to"] = 10
        known[node["outputs"][0]] = graph.call_function(function, tuple(arguments), attributes)
    graph.output(tuple(known[name] for name in described["outputs"]))
    module = torch.fx.GraphModule(root, graph).to(device).eval()
    return module, [_tensor(inputs[name], half, device) for name in described["inputs"]]


def _tensor(values: np.ndarray, half: bool, device: str) -> Any:
    found = torch.from_numpy(np.array(values)).to(device)
    if half and found.is_floating_point():
        found = found.half()
    return found.contiguous(memory_format=torch.channels_last) if found.ndim == 4 else found


_SHAPES = {("Reshape", 1), ("Clip", 1), ("Clip", 2)}
"""Inputs that PyTorch takes as numbers."""


def _padding(pads: list[int]) -> list[int]:
    half = len(pads) // 2
    assert pads[:half] == pads[half:], pads
    return pads[:half]


def _conv(x, w, b=None, *, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1, **_):
    return functional.conv2d(x, w, b, strides, _padding(list(pads)), dilations, group)


def _batch_norm(x, scale, bias, mean, var, *, epsilon=1e-5, **_):
    return functional.batch_norm(x, mean, var, scale, bias, False, 0.0, epsilon)


def _pool(pool: Callable[..., Any], **always: Any) -> Callable[..., Any]:
    def op(x, *, kernel_shape, strides=(1, 1), pads=(0, 0, 0, 0), ceil_mode=0, **_):
        padding = _padding(list(pads))
        return pool(x, kernel_shape, strides, padding, ceil_mode=bool(ceil_mode), **always)

    return op


def _gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    assert (alpha, beta, transA) == (1.0, 1.0, 0)
    return functional.linear(a, b if transB else b.T, c)


def _layer_norm(x, scale, bias=None, *, axis=-1, epsilon=1e-5, **_):
    return functional.layer_norm(x, x.shape[axis:], scale, bias, epsilon)


def _gather(x, index, *, axis=0):
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    return torch.index_select(x, axis, index.reshape(-1)).reshape(shape)


def _gather_nd(x, index, *, batch_dims=0):
    assert batch_dims == 0
    return x[tuple(index.unbind(-1))]


def _reshape(x, shape, **_):
    return x.reshape([x.shape[at] if extent == 0 else extent for at, extent in enumerate(shape)])


def _matmul(a, b):
    return torch.matmul(a, b)


_OPS: dict[str, Callable[..., Any]] = {
    "Add": torch.add,
    "And": torch.logical_and,
    "AveragePool": _pool(functional.avg_pool2d),
    "BatchNormalization": _batch_norm,
    "Cast": lambda x, *, to, **_: x.to(_DTYPES[to]),
    "Clip": lambda x, low=None, high=None, *, min=None, max=None: x.clamp(
        low if min is None else min, high if max is None else max
    ),
    "Concat": lambda *xs, axis: torch.cat(xs, axis),
    "Conv": _conv,
    "Flatten": lambda x, *, axis=1: x.flatten(axis),
    "Gather": _gather,
    "GatherElements": lambda x, index, *, axis=0: torch.gather(x, axis, index),
    "GatherND": _gather_nd,
    "Gelu": lambda x, *, approximate="none": functional.gelu(x, approximate=approximate),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "Identity": lambda x: x,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "MaxPool": _pool(functional.max_pool2d),
    "Mul": torch.mul,
    "Relu": functional.relu,
    "Reshape": _reshape,
    "Softmax": lambda x, *, axis=-1: functional.softmax(x, axis),
    "Transpose": lambda x, *, perm: x.permute(perm),
    "Where": torch.where,
}
