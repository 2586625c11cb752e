#!/usr/bin/env python3
"""Errors of matrix products, convolutions and models of adversarial magnitudes, by engine and row.

    python -m scripts.bench.dynamic_rows
    python -m scripts.bench.dynamic_rows --models resnet18_v1.onnx minilm.onnx

Magnitudes span 1e8 within a sample: outlier features, every second token or pixel 10,000 times as
large as the others. An error is relative to the largest value of its own row: a token of a product,
a pixel of an image, the last axis of a model's results. References are computed in float64, those
of models by a build of the same model in float64. The exit status is 1 if a row of a product in a
default build is off by more than 8 times what onnxruntime's worst row is.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler import relay

PRECISIONS = ("strict", "default", "fast")
LIMIT = 8
IMAGE = 56


def products(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, x, w) of products x @ w."""
    for rows, depth, columns in (
        (128, 768, 3072),
        (64, 3072, 768),
        (32, 4096, 512),
        (7, 1024, 256),
    ):
        w = (rng.standard_normal((depth, columns)) / np.sqrt(depth)).astype("float32")
        x = rng.standard_normal((1, rows, depth)).astype("float32")
        shape = f"{rows}x{depth}x{columns}"
        yield f"plain, {shape}", x, w
        outlier, small = x.copy(), w.copy()
        outlier[..., 7] *= 1e4
        small[7] *= 1e-4
        yield f"outlier feature, {shape}", outlier, small
        tokens = x.copy()
        tokens[:, 1::2] *= 1e4
        yield f"every second token, {shape}", tokens, w
        columns_apart = w.copy()
        columns_apart[:, 1::2] *= 1e4
        yield f"every second column, {shape}", x, columns_apart
        yield f"all positive, {shape}", np.abs(x), np.abs(w)


def images(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, x, w) of 3x3 convolutions that keep the size."""
    w = (rng.standard_normal((64, 64, 3, 3)) / 24).astype("float32")
    x = rng.standard_normal((1, 64, IMAGE, IMAGE)).astype("float32")
    yield "plain, 3x3", x, w
    yield "all positive, 3x3", np.abs(x), np.abs(w)
    far = x * np.float32(1e-2)
    far[..., 10::19, 10::19] = 1e4
    yield "single pixels of 1e4, 3x3", far, w


def convolved(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """In float64."""
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype("float64"), optimize=True)


def model_of(op_type: str, x: np.ndarray, w: np.ndarray, **attributes: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", "w"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def results(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The first output, by engine and precision."""
    found: dict[str, np.ndarray] = {}
    try:
        import onnxruntime

        session = onnxruntime.InferenceSession(model.SerializeToString())
        found["onnxruntime"] = session.run(None, feeds)[0]
    except ImportError:
        pass
    for precision in PRECISIONS:
        found[precision] = built(model, feeds, precision)
    return found


def built(model: onnx.ModelProto, feeds: dict[str, np.ndarray], precision: str) -> np.ndarray:
    mod, params = relay.frontend.from_onnx(model)
    with compiler.PassContext(opt_level=3, config={"baton.precision": precision}):
        library = relay.build(mod, "llvm", params=params)
    return np.asarray(next(iter(library.session().run(feeds).values())))


def row_errors(value: np.ndarray, exact: np.ndarray, axis: int) -> np.ndarray:
    """Largest error of each row along an axis, relative to the row's own largest value."""
    largest = np.abs(exact).max(axis=axis)
    return np.abs(value - exact).max(axis=axis) / np.where(largest == 0, 1, largest)


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every float32 a float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.value_info[:]
    for info in (*wide.graph.input, *wide.graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in wide.graph.initializer:
        _widen(tensor)
    for node in wide.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            elif node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return wide


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype("float64")
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def random_feeds(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Values for all inputs; axes without an extent have 16 elements, the first of them one."""
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for info in model.graph.input:
        if info.name in weights:
            continue
        dims = info.type.tensor_type.shape.dim
        shape = [d.dim_value or (1 if axis == 0 else 16) for axis, d in enumerate(dims)]
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if np.issubdtype(dtype, np.integer):
            feeds[info.name] = rng.integers(0, 2, shape).astype(dtype)
        else:
            feeds[info.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


def report(name: str, found: dict[str, np.ndarray], exact: np.ndarray, axis: int) -> bool:
    """Print a line; whether the default's worst row is within the limit."""
    worst = {engine: row_errors(value, exact, axis).max() for engine, value in found.items()}
    print(
        f"| {name} |", " | ".join(f"{worst.get(e, np.nan):.1e}" for e in engines()), "|", flush=True
    )
    return not worst["default"] > LIMIT * worst.get("onnxruntime", np.inf)


def engines() -> tuple[str, ...]:
    return ("onnxruntime", *PRECISIONS)


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="*", type=pathlib.Path, default=[])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, within = np.random.default_rng(options.seed), True
    print("| case |", " | ".join(engines()), "|\n|---|" + "---|" * len(engines()))
    multiply: Callable[..., Any] = np.matmul
    for name, x, w in products(rng):
        exact = multiply(x.astype("float64"), w.astype("float64"))
        within &= report(name, results(model_of("MatMul", x, w), {"x": x}), exact, -1)
    for name, x, w in images(rng):
        proto = model_of("Conv", x, w, pads=[1] * 4)
        report(name, results(proto, {"x": x}), convolved(x, w), 1)
    for path in options.models:
        proto = onnx.load(path)
        feeds = random_feeds(proto, rng)
        wide = {
            key: value.astype("float64") if value.dtype == np.float32 else value
            for key, value in feeds.items()
        }
        exact = built(in_float64(proto), wide, "strict")
        report(path.stem, results(proto, feeds), exact, -1)
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
