"""Time models and products on the GPU: Baton, NVIDIA's libraries in it, onnxruntime, torch.compile.

Rounds of all engines in turn, each of as many runs as take `--seconds`; the medians are printed in
microseconds, and how many times faster than each other engine Baton is. What an engine needs and
is not here is said. torch.compile (mode max-autotune) gets the products; onnxruntime the models.
Results are compared with Baton's first. For a machine with a GPU.

    python -m scripts.bench.cuda resnet50_v1 bert_base --dtype float16
    python -m scripts.bench.cuda --products 4096,4096,4096 1,11008,4096 --precision tf32
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

import compiler
from compiler import relay
from compiler.models import fill_weights
from compiler.partition import partition
from compiler.runtime import cuda_runtime, graph_executor
from tests.test_models import example_inputs

TOLERANCE = {"float32": 1e-3, "float16": 0.03, "bfloat16": 0.2}


@dataclass(frozen=True)
class Engine:
    """Something that computes a case: starts a run, waits for all, and gives the first result."""

    start: Callable[[], object]
    wait: Callable[[], object]
    result: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model or a matmul; `onnx` is the model as ONNX, empty for matmuls."""

    title: str
    dtype: str
    mod: tvm.IRModule
    params: dict[str, Any]
    inputs: dict[str, np.ndarray]
    onnx: bytes = b""


def product(text: str, dtype: str) -> Case:
    """(m, k) by the transpose of (n, k), for "m,n,k"."""
    m, n, k = map(int, text.split(","))
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(dtype) for shape in ((m, k), (n, k)))
    left = relay.var("x", shape=(m, k), dtype=dtype)
    body = relay.nn.dense(left, relay.const(w))
    mod = tvm.IRModule.from_expr(relay.Function([left], body))
    return Case(f"{m} x {n} x {k}", dtype, mod, {"w": w}, {"x": x})


def model(name: str, dtype: str) -> Case:
    """One of the six models; its floats of a dtype."""
    network = fill_weights.hydrate(name)
    inputs = example_inputs(network)
    mod, params = relay.frontend.from_onnx(network)
    if dtype != "float32":
        from compiler.lowering.bind import bind_params

        mod = relay.transform.InferType()(bind_params(mod, params)[0])
        mod, params = relay.transform.ToMixedPrecision(dtype)(mod), {}
    given = network.SerializeToString() if dtype == "float32" else b""
    return Case(name, dtype, mod, params, inputs, given)


def baton(case: Case, precision: str, *backends: str) -> Engine:
    mod = case.mod
    params = case.params if case.onnx else {}
    for backend in backends:
        mod = partition(mod, backend, params)
    with compiler.PassContext(opt_level=3, config={"baton.precision": precision}):
        library = relay.build(mod, "cuda", params=params)
    device = tvm.cuda(0)
    module = graph_executor.GraphModule(library["default"](device))
    module.set_input(case.inputs)
    return Engine(module.run, device.sync, lambda: module.get_output(0).numpy())


def of_onnxruntime(case: Case, precision: str) -> Engine | str:
    if not case.onnx:
        return "gets float32 models"
    try:
        import onnxruntime
    except ImportError:
        return "is not installed"
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return "has no CUDA provider: pip install onnxruntime-gpu"
    options = {"use_tf32": int(precision == "tf32")}
    providers = [("CUDAExecutionProvider", options)]
    session = onnxruntime.InferenceSession(case.onnx, providers=providers)
    binding = session.io_binding()
    for name, value in case.inputs.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value, "cuda"))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda")
    return Engine(
        lambda: session.run_with_iobinding(binding),
        binding.synchronize_outputs,
        lambda: binding.copy_outputs_to_cpu()[0],
    )


def of_torch(case: Case, precision: str) -> Engine | str:
    if case.onnx or "w" not in case.params:
        return "gets products"
    try:
        import torch
    except ImportError:
        return "is not installed"
    if not torch.cuda.is_available():
        return "has no CUDA"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    x, w = (torch.from_numpy(v).cuda() for v in (case.inputs["x"], case.params["w"]))
    compiled = torch.compile(torch.nn.functional.linear, mode="max-autotune")
    return Engine(
        lambda: compiled(x, w), torch.cuda.synchronize, lambda: compiled(x, w).cpu().numpy()
    )


def in_turn(engines: dict[str, Engine], seconds: float, rounds: int) -> dict[str, float]:
    """Seconds of a run of each engine: the median of the rounds."""
    taken: dict[str, list[float]] = {name: [] for name in engines}
    runs = {}
    for name, engine in engines.items():
        for _ in range(3):  # the second run captures a graph
            engine.start()
        engine.wait()
        runs[name] = max(1, int(seconds / max(_timed(engine, 1), 1e-6)))
    for _ in range(rounds):
        for name, engine in engines.items():
            taken[name].append(_timed(engine, runs[name]))
    return {name: statistics.median(times) for name, times in taken.items()}


def _timed(engine: Engine, runs: int) -> float:
    engine.wait()
    start = time.perf_counter()
    for _ in range(runs):
        engine.start()
    engine.wait()
    return (time.perf_counter() - start) / runs


def compare(case: Case, precision: str, seconds: float, rounds: int) -> int:
    """Print a case's row; how many engines differ from Baton."""
    made: dict[str, Engine | str] = {"baton": baton(case, precision)}
    try:
        with_libraries = baton(case, precision, "cudnn", "cublaslt")
        with_libraries.start()
        made["libraries"] = with_libraries
    except compiler.errors.BatonError as error:
        made["libraries"] = f"can't run: {str(error).splitlines()[0]}"
    made["onnxruntime"] = of_onnxruntime(case, precision)
    made["torch"] = of_torch(case, precision)
    engines = {name: engine for name, engine in made.items() if isinstance(engine, Engine)}
    medians = in_turn(engines, seconds, rounds)
    expected = engines["baton"].result().astype("float64")
    differing = 0
    for name, engine in made.items():
        if isinstance(engine, str):
            print(f"{case.title:24}{case.dtype:10}{name:14}{engine}")
            continue
        found = engine.result().astype("float64")
        limit = TOLERANCE[case.dtype if precision != "tf32" else "float16"]
        wrong = not np.abs(found - expected).max() <= limit * np.abs(expected).max()
        differing += wrong
        ratio = f"{medians[name] / medians['baton']:10.2f}"
        text = f"{case.title:24}{case.dtype:10}{name:14}{1e6 * medians[name]:12.1f}{ratio}"
        print(text + ("  DIFFERS" if wrong else ""), flush=True)
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="of the six")
    parser.add_argument("--products", nargs="*", default=[], help="m,n,k")
    parser.add_argument("--dtype", default="float32", choices=list(TOLERANCE))
    parser.add_argument("--precision", default="default", choices=["default", "tf32"])
    parser.add_argument("--seconds", type=float, default=0.2, help="of a round of one engine")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    lacking = cuda_runtime.prepare()
    if lacking is not None or not tvm.cuda(0).exist:
        parser.error(lacking or "there is no GPU that NVIDIA's driver knows of")
    print(f"{'case':24}{'dtype':10}{'engine':14}{'us':>12}{'baton is':>10}")
    cases = [model(name, options.dtype) for name in options.models]
    cases += [product(text, options.dtype) for text in options.products]
    differing = [compare(c, options.precision, options.seconds, options.rounds) for c in cases]
    return 1 if sum(differing) else 0


if __name__ == "__main__":
    sys.exit(main())
