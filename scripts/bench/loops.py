#!/usr/bin/env python3
"""Time a round of loops whose rounds are counted while the model runs, beside onnxruntime's.

    python -m scripts.bench.loops [--rounds 1000] [--repeat 20] [--width 64] [--only scan]

Bodies are small, so that what a round costs beside its kernels is seen. Times are the least
processor times of so many runs in turn, in microseconds of a round.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

NODE, INFO = helper.make_node, helper.make_tensor_value_info
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=20, help="runs of each, the least counts")
    parser.add_argument("--width", type=int, default=64, help="elements of a state")
    parser.add_argument("--only", help="names of loops, with commas")
    options = parser.parse_args()
    models = {
        name: make(options.width)
        for name, make in MODELS.items()
        if not options.only or name in options.only.split(",")
    }
    print("| loop | Baton | onnxruntime | onnxruntime / Baton | differ by |\n|---|---|---|---|---|")
    for name, model in models.items():
        feeds = feeds_of(model, options.rounds, options.width)
        runs = [baton(model, feeds), onnxruntime(model, feeds)]
        results = [run() for run in runs]
        differ = max(float(np.abs(a - b).max()) for a, b in zip(*results, strict=True))
        times = [[seconds(run) for run in runs] for _ in range(options.repeat)]
        ours, theirs = (1e6 * min(each) / options.rounds for each in zip(*times))
        print(f"| {name} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} | {differ:.1e} |")
    return 0


def seconds(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def feeds_of(model: ModelProto, rounds: int, width: int) -> dict[str, np.ndarray]:
    data = np.random.default_rng(0).standard_normal((rounds, width)).astype("float32")
    known = {"n": np.array(rounds), "x": data[0], "xs": data}
    return {value.name: known[value.name] for value in model.graph.input}


def baton(model: ModelProto, feeds: dict[str, np.ndarray]) -> Callable[[], list[np.ndarray]]:
    import tvm

    from compiler import relay
    from compiler.runtime import graph_executor

    mod, params = relay.frontend.from_onnx(model)
    library = relay.build(mod, target="llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for name, value in feeds.items():
        module.set_input(name, value)

    def run() -> list[np.ndarray]:
        module.run()
        return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]

    return run


def onnxruntime(model: ModelProto, feeds: dict[str, np.ndarray]) -> Callable[[], list[np.ndarray]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options)
    return lambda: list(session.run(None, feeds))


# ---------------------------------------------------------------- models


def model_of(
    nodes: list[Any], inputs: list[Any], outputs: list[str], weights: dict[str, Any]
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "loops",
        inputs,
        [
            helper.make_value_info(name, helper.make_tensor_type_proto(FLOAT, None))
            for name in outputs
        ],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def loop_of(nodes: list[Any], outputs: list[Any], width: int) -> Any:
    """The graph of a loop's body whose one state is `h`, (width,)."""
    inputs = [INFO("i", INT, ()), INFO("go", BOOL, ()), INFO("h", FLOAT, (width,))]
    return helper.make_graph(nodes, "body", inputs, outputs)


def counted(width: int) -> ModelProto:
    """So many times h = 0.5 h + x."""
    body = loop_of(
        [
            NODE("Identity", ["go"], ["go_on"]),
            NODE("Mul", ["h", "half"], ["t"]),
            NODE("Add", ["t", "x"], ["following"]),
        ],
        [INFO("go_on", BOOL, ()), INFO("following", FLOAT, (width,))],
        width,
    )
    node = NODE("Loop", ["n", "", "x"], ["y"], body=body)
    inputs = [INFO("n", INT, ()), INFO("x", FLOAT, (width,))]
    return model_of([node], inputs, ["y"], {"half": np.array(0.5, "float32")})


def conditional(width: int) -> ModelProto:
    """The same, as long as the round's number, in a comparison of the body's, is below n."""
    body = loop_of(
        [
            NODE("Add", ["i", "one"], ["next"]),
            NODE("Less", ["next", "n"], ["go_on"]),
            NODE("Mul", ["h", "half"], ["t"]),
            NODE("Add", ["t", "x"], ["following"]),
        ],
        [INFO("go_on", BOOL, ()), INFO("following", FLOAT, (width,))],
        width,
    )
    nodes = [NODE("Less", ["zero", "n"], ["any"]), NODE("Loop", ["", "any", "x"], ["y"], body=body)]
    weights = {"half": np.array(0.5, "float32"), "one": np.array(1), "zero": np.array(0)}
    return model_of(nodes, [INFO("n", INT, ()), INFO("x", FLOAT, (width,))], ["y"], weights)


def stacked(width: int) -> ModelProto:
    """The same as the first one, with all states as a result."""
    body = loop_of(
        [
            NODE("Identity", ["go"], ["go_on"]),
            NODE("Mul", ["h", "half"], ["t"]),
            NODE("Add", ["t", "x"], ["following"]),
            NODE("Relu", ["following"], ["slice"]),
        ],
        [
            INFO("go_on", BOOL, ()),
            INFO("following", FLOAT, (width,)),
            INFO("slice", FLOAT, (width,)),
        ],
        width,
    )
    node = NODE("Loop", ["n", "", "x"], ["y", "all"], body=body)
    inputs = [INFO("n", INT, ()), INFO("x", FLOAT, (width,))]
    return model_of([node], inputs, ["y", "all"], {"half": np.array(0.5, "float32")})


def scanned(width: int) -> ModelProto:
    """A recurrent cell, h = tanh(W h + x), over a sequence of any length."""
    body = helper.make_graph(
        [
            NODE("MatMul", ["w", "h"], ["p"]),
            NODE("Add", ["p", "x_i"], ["s"]),
            NODE("Tanh", ["s"], ["following"]),
            NODE("Identity", ["following"], ["slice"]),
        ],
        "body",
        [INFO("h", FLOAT, (width,)), INFO("x_i", FLOAT, (width,))],
        [INFO("following", FLOAT, (width,)), INFO("slice", FLOAT, (width,))],
    )
    node = NODE("Scan", ["start", "xs"], ["y", "all"], body=body, num_scan_inputs=1)
    weights = {
        "start": np.zeros(width, "float32"),
        "w": np.random.default_rng(1).standard_normal((width, width)).astype("float32") / width,
    }
    return model_of([node], [INFO("xs", FLOAT, ("rounds", width))], ["y", "all"], weights)


def branching(width: int) -> ModelProto:
    """A loop whose rounds are those of one of two branches."""
    branches = [
        helper.make_graph(nodes, name, [], [INFO(name, FLOAT, (width,))])
        for name, nodes in (
            ("even", [NODE("Mul", ["h", "half"], ["m"]), NODE("Add", ["m", "x"], ["even"])]),
            ("odd", [NODE("Sub", ["h", "x"], ["d"]), NODE("Tanh", ["d"], ["odd"])]),
        )
    ]
    body = loop_of(
        [
            NODE("Identity", ["go"], ["go_on"]),
            NODE("Mod", ["i", "two"], ["rest"]),
            NODE("Cast", ["rest"], ["is_odd"], to=BOOL),
            NODE("If", ["is_odd"], ["following"], then_branch=branches[1], else_branch=branches[0]),
        ],
        [INFO("go_on", BOOL, ()), INFO("following", FLOAT, (width,))],
        width,
    )
    node = NODE("Loop", ["n", "", "x"], ["y"], body=body)
    inputs = [INFO("n", INT, ()), INFO("x", FLOAT, (width,))]
    weights = {"half": np.array(0.5, "float32"), "two": np.array(2)}
    return model_of([node], inputs, ["y"], weights)


MODELS = {
    "counted": counted,
    "while": conditional,
    "stacked": stacked,
    "scan": scanned,
    "branches": branching,
}

if __name__ == "__main__":
    sys.exit(main())
