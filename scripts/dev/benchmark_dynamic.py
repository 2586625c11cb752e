#!/usr/bin/env python3
"""Measure one library for all extents against a library for each, and against the peers, in turn.

    python scripts/dev/benchmark_dynamic.py minilm.onnx --lengths 1,7,16,32,128,384
    python scripts/dev/benchmark_dynamic.py resnet50_v1.onnx --batches 1,4
    python scripts/dev/benchmark_dynamic.py bert_base.onnx --lengths 128 --without static,openvino

The model gets symbols for its batch, and text models for their length (`dynamic_models`). Baton
builds it once with symbols and, for "static", once for each extent; onnxruntime and OpenVINO read
the same file with symbols. All run on one thread (TVM_NUM_THREADS=1) and in alternation; printed
is the least processor time of a run in milliseconds, which other work on the machine lengthens less
than the clock's, how many times as long as the static library the one with
symbols takes, and the largest difference of its results from onnxruntime's, relative to the largest
result.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

ENGINES = ("symbolic", "static", "onnxruntime", "openvino")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--lengths", default="1,7,16,32,128,384", help="of texts")
    parser.add_argument("--batches", default="1")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--without", default="", help="engines to leave out")
    parser.add_argument("--output", type=pathlib.Path, help="a JSON file for the rows")
    args = parser.parse_args()

    from dynamic_models import with_symbols

    proto = with_symbols(args.model)
    left_out = args.without.split(",")
    engines = [name for name in ENGINES if name not in left_out]
    inputs = inputs_of(proto)
    is_text = any(len(shape) == 2 for shape, _ in inputs.values())
    numbers = [int(each) for each in args.batches.split(",")]
    lengths = [int(each) for each in args.lengths.split(",")] if is_text else [0]
    once = {name: _ONCE[name](proto) for name in engines if name in _ONCE}
    rows = []
    print(
        "batch length " + " ".join(f"{name:>12}" for name in engines) + "  symbolic/static  error"
    )
    for batch in numbers:
        for length in lengths:
            feeds = values(inputs, {"batch": batch, "seq": length})
            runs = {name: once[name](feeds) for name in engines if name != "static"}
            if "static" in engines:
                shapes = {name: value.shape for name, value in feeds.items()}
                runs["static"] = baton(proto, shapes)(feeds)
            rows.append({"batch": batch, "length": length, **measure(runs, args.rounds)})
            show(rows[-1], engines)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1))
    return 0


def inputs_of(proto: Any) -> dict[str, tuple[list[Any], str]]:
    """Shapes, in which symbols are names, and dtypes of the inputs."""
    import onnx

    weights = {tensor.name for tensor in proto.graph.initializer}
    found = {}
    for value in proto.graph.input:
        if value.name not in weights:
            kind = value.type.tensor_type
            dtype = str(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
            found[value.name] = ([d.dim_param or d.dim_value for d in kind.shape.dim], dtype)
    return found


def values(
    inputs: dict[str, tuple[list[Any], str]], extents: dict[str, int]
) -> dict[str, np.ndarray]:
    """Seeded pictures and token ids; masks of ones."""
    rng = np.random.default_rng(0)
    made = {}
    for name, (shape, dtype) in inputs.items():
        known = [extents.get(extent, extent) for extent in shape]
        value: np.ndarray
        if "mask" in name:
            value = np.ones(known)
        elif dtype.startswith("float"):
            value = rng.standard_normal(known)
        else:
            value = rng.integers(0, 1000, known)
        made[name] = value.astype(dtype)
    return made


Prepare = Callable[[dict[str, np.ndarray]], tuple[Callable[[], Any], Callable[[], np.ndarray]]]
"""From inputs to a function that runs once, and one that gives the first result."""


def baton(proto: Any, shapes: dict[str, Any] | None = None) -> Prepare:
    """Baton's library for a model, with symbols or for the given shapes."""
    import tvm

    from compiler import relay
    from compiler.runtime import graph_executor

    mod, params = relay.frontend.from_onnx(proto, shape=shapes)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, "llvm", params=params)

    def prepare(feeds: dict[str, np.ndarray]) -> Any:
        module = graph_executor.GraphModule(library["default"](tvm.cpu()))
        module.set_input(feeds)
        return module.run, lambda: module.get_output(0).numpy()

    return prepare


def onnxruntime(proto: Any) -> Prepare:
    """A session on one thread."""
    import onnxruntime as peer

    options = peer.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = peer.InferenceSession(proto.SerializeToString(), options)
    return lambda feeds: (
        lambda: session.run(None, feeds),
        lambda: session.run(None, feeds)[0],
    )


def openvino(proto: Any) -> Prepare:
    """A model compiled for the CPU, for one thread and float32."""
    import openvino as peer

    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    model = peer.Core().read_model(proto.SerializeToString())
    compiled = peer.compile_model(model, "CPU", settings)

    def prepare(feeds: dict[str, np.ndarray]) -> Any:
        request = compiled.create_infer_request()
        return lambda: request.infer(feeds), lambda: request.infer(feeds)[0]

    return prepare


_ONCE = {"symbolic": baton, "onnxruntime": onnxruntime, "openvino": openvino}


def measure(runs: dict[str, Any], rounds: int) -> dict[str, Any]:
    """The least milliseconds of a run, in alternation, and the difference of the results."""
    fastest = dict.fromkeys(runs, float("inf"))
    for function, _ in runs.values():
        function()
    for _ in range(rounds):
        for name, (function, _) in runs.items():
            started = time.process_time()
            function()
            fastest[name] = min(fastest[name], (time.process_time() - started) * 1e3)
    error = float("nan")
    if "onnxruntime" in runs and "symbolic" in runs:
        own, wanted = runs["symbolic"][1](), runs["onnxruntime"][1]()
        error = float(np.abs(own - wanted).max() / np.abs(wanted).max())
    return {**fastest, "error": error}


def show(row: dict[str, Any], engines: list[str]) -> None:
    ratio = row["symbolic"] / row["static"] if "static" in row else float("nan")
    times = " ".join(f"{row[name]:12.2f}" for name in engines)
    print(
        f"{row['batch']:5} {row['length']:6} {times} {ratio:16.2f}  {row['error']:.1e}", flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
