"""Builds on the machine with the GPU: the compiler, this machine's nvcc, its GPU as the target."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from compiler.runtime import graph_executor
from scripts.gpu_kit.on_device import cases

Result = dict[str, Any]


def product(dtype: str) -> Result:
    """A product with bias and ReLU, built for the GPU that is here."""
    import tvm

    from compiler import relay

    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, shape).astype(dtype) for shape in ((256, 512), (384, 512)))
    left = relay.var("x", shape=x.shape, dtype=dtype)
    body = relay.nn.relu(relay.nn.dense(left, relay.const(w)))
    mod = tvm.IRModule.from_expr(relay.Function([left], body))
    wanted = np.maximum(x.astype("float32") @ w.astype("float32").T, 0)
    return _built(mod, {"x": x}, wanted, 1e-4 if dtype == "float32" else 1e-2)


def network() -> Result:
    """A convolution, a pool, a product and a softmax."""
    from scripts.gpu_kit import networks

    mod, _ = networks.small_network()
    inputs, (expected,) = cases.values("network_as_a_CUDA_graph")
    return _built(mod, inputs, expected, 1e-4)


def onnx_model(name: str) -> Result:
    """One of the six models from its ONNX file, if the package onnx is here."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        return {"status": "skipped", "because": "the package onnx is not installed"}
    from compiler import relay
    from compiler.models import fill_weights

    mod, params = relay.frontend.from_onnx(fill_weights.hydrate(name))
    inputs, (expected, *_) = cases.values(f"model_{name}")
    return _built(mod, inputs, expected, 1e-4, params)


def _built(mod: Any, inputs: Any, expected: Any, tolerance: float, params: Any = None) -> Result:
    from compiler import relay

    gpu = cases.device()
    start = time.perf_counter()
    library = relay.build(mod, "cuda", params=params)
    seconds = time.perf_counter() - start
    module = graph_executor.GraphModule(library["default"](gpu))
    for _ in range(3):
        module.run(**inputs)
    result = cases.judged([module.get_output(0).numpy()], [expected], tolerance)
    return {**result, "build_seconds": seconds, "kernels": len(library.report.kernels)}


def family(case: str) -> Result:
    """A kernel of one family, scheduled for this GPU and compiled here."""
    import tvm
    from tvm.target import Target

    from compiler.target.nvcc import device_code
    from schedules import rules

    gpu = cases.device()
    arch = "sm_" + str(gpu.compute_version).replace(".", "")
    arch = "sm_90a" if arch == "sm_90" else arch
    func = tvm.ir.load_json((cases.FOLDER / f"{case}.tir.json").read_text())
    target = Target({"kind": "cuda", "arch": arch}, host="llvm")
    scheduled = rules.schedule(func, target)
    assert scheduled is not None, "no rule takes the function"
    kernel = scheduled.func.with_attr("global_symbol", "kernel")
    with device_code():
        library = tvm.compile(tvm.IRModule({"kernel": kernel}), target)
    return {**cases.compared(case, library), "rule": scheduled.rule}
