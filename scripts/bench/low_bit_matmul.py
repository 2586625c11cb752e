#!/usr/bin/env python3
"""Products of one row with weights of 4 bits: bytes a second, alone and beside onnxruntime.

    python -m scripts.bench.low_bit_matmul --inner 2048 --outer 131072

Weights are larger than the caches unless `--outer` is small. One thread; the least times of rounds
in turn, for activations in float32 (`accuracy_level` 0) and in int8 (4).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from compiler import target as targets
from scripts.bench.machine_peak import memory_gbytes
from scripts.models.decoders import Graph


def model(rows: int, inner: int, outer: int, level: int) -> onnx.ModelProto:
    """One MatMulNBits with blocks of 32."""
    graph = Graph(0)
    result = graph.product_of_4_bits("x", inner, outer, level)
    made = helper.make_graph(
        graph.nodes,
        "bits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, inner))],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, (rows, outer))],
        graph.weights,
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(made, opset_imports=sets, ir_version=8)


def with_baton(proto: onnx.ModelProto, target: str) -> Callable[[np.ndarray], np.ndarray]:
    """What runs the model on Baton."""
    import tvm

    from compiler import relay
    from compiler.runtime.graph_executor import GraphModule

    mod, params = relay.frontend.from_onnx(proto)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target=target, params=params)
    module = GraphModule(library["default"](tvm.cpu()))

    def run(data: np.ndarray) -> np.ndarray:
        module.run(x=data)
        result: np.ndarray = module.get_output(0).numpy()
        return result

    return run


def with_onnxruntime(proto: onnx.ModelProto, _: str) -> Callable[[np.ndarray], np.ndarray]:
    """What runs the model on onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda data: session.run(None, {"x": data})[0]


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--inner", type=int, default=2048)
    parser.add_argument("--outer", type=int, default=131072)
    parser.add_argument("--levels", type=int, nargs="*", default=[0, 4], help="accuracy_level")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--target", default="llvm")
    args = parser.parse_args()
    memory = memory_gbytes(targets.parse("llvm"), 1)
    size = args.inner * args.outer * (1 / 2 + 4 / 32) / 1e9
    print(f"{size * 1e3:.0f} MB of weights; a thread reads {memory:.1f} GB/s from memory")
    data = np.random.default_rng(0).standard_normal((args.rows, args.inner)).astype("float32")
    engines: dict[str, Any] = {}
    for level in args.levels:
        proto = model(args.rows, args.inner, args.outer, level)
        engines[f"baton {level}"] = with_baton(proto, args.target)
        engines[f"onnxruntime {level}"] = with_onnxruntime(proto, args.target)
    results = {name: run(data) for name, run in engines.items()}
    times = dict.fromkeys(engines, float("inf"))
    for _ in range(args.rounds):
        for name, run in engines.items():
            begin = time.process_time()
            run(data)
            times[name] = min(times[name], time.process_time() - begin)
    exact = results[f"onnxruntime {args.levels[0]}"]
    for name, seconds in times.items():
        error = np.abs(results[name] - exact).max() / np.abs(exact).max()
        print(
            f"{name:14} {seconds * 1e3:8.3f} ms {size / seconds:6.1f} GB/s, "
            f"{size / seconds / memory:.2f} of memory's; {error:.1e} from the first peer"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
