"""Latency of the ways to run a model against `relay.build`'s library, measured in turn.

    python -m scripts.bench.executors resnet18.onnx bert_base.onnx --rounds 20

The graph, vm and debug executors of `relay.create_executor`, `relay.vm.compile` and the debugger
run the same inputs as the library's graph executor, in alternation; what is printed is the median
of the ratios of neighbors, which drifts of the machine leave alone. The debugger's is the time of
one run of `run_individual`, whose kernels are measured one by one. Exits with 1 where a ratio is
above `--limit`.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import tvm

from compiler import relay
from compiler.runtime.debugger import debug_executor
from compiler.runtime.graph_executor import GraphModule

DEBUGGER_RUNS = 9


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Random pictures; ones for words and masks."""
    known = {tensor.name for tensor in model.graph.initializer}
    values = {}
    for each in model.graph.input:
        if each.name in known:
            continue
        shape = [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        if each.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            values[each.name] = np.random.default_rng(0).standard_normal(shape).astype("float32")
        else:
            values[each.name] = np.ones(shape, "int64")
    return values


def ways(mod: tvm.IRModule, params: Any, values: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Name to what runs once; the first is the library's own executor."""
    library = relay.build(mod, "llvm", params=params)
    module = GraphModule(library["default"](tvm.cpu()))
    debugger = debug_executor.create(library.get_graph_json(), library, tvm.cpu())
    debugger.set_input(**values)

    def run() -> Any:
        module.run(**values)
        return module.get_output(0)

    result: dict[str, Callable[[], Any]] = {"relay.build": run}
    for kind in ("graph", "vm", "debug"):
        executor = relay.create_executor(kind, mod, tvm.cpu(), "llvm", params)
        result[f"create_executor({kind!r})"] = functools.partial(executor.evaluate(), **values)
    machine = relay.vm.VirtualMachine(relay.vm.compile(mod, "llvm", params=params), tvm.cpu())
    result["relay.vm"] = functools.partial(machine.invoke, "main", **values)
    result["debugger"] = lambda: debugger.run_individual(DEBUGGER_RUNS)
    return result


def ratios(found: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median of each way's time over the first way's, of the same round."""
    base, *others = found
    spent: dict[str, list[float]] = {name: [] for name in found}
    for index in range(rounds + 2):
        order = list(found) if index % 2 else list(reversed(found))
        for name in order:
            started = time.perf_counter()
            found[name]()
            runs = DEBUGGER_RUNS + 1 if name == "debugger" else 1  # one of them warms up
            if index >= 2:  # the first rounds warm up
                spent[name].append((time.perf_counter() - started) / runs)
    print(f"  {base}: {1e3 * statistics.median(spent[base]):.2f} ms")
    return {
        name: statistics.median(own / each for own, each in zip(spent[name], spent[base]))
        for name in others
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="ONNX files")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--limit", type=float, default=1.1)
    arguments = parser.parse_args()
    slow = []
    for path in arguments.models:
        print(path, flush=True)
        model = onnx.load(path)
        mod, params = relay.frontend.from_onnx(model)
        values = {name: tvm.runtime.tensor(value) for name, value in inputs_of(model).items()}
        for name, ratio in ratios(ways(mod, params, values), arguments.rounds).items():
            print(f"  {name}: {ratio:.3f}", flush=True)
            slow += [f"{path}: {name} {ratio:.3f}"] if ratio > arguments.limit else []
    for line in slow:
        print("above the limit:", line)
    return min(len(slow), 1)


if __name__ == "__main__":
    sys.exit(main())
