"""Times of Baton's kernels and models beside PyTorch's, which call cuBLAS, cuDNN and Triton.

All run on the GPU's default stream. A time is the median of five rounds of 100 runs between two
CUDA events, in microseconds. PyTorch is imported after TVM's runtime.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.runtime import graph_executor, load_module
from scripts.gpu_kit.on_device import cases

RUNS, ROUNDS = 100, 5
COMPILED = "max-autotune"
Result = dict[str, Any]


def microseconds(start: Callable[[], object]) -> tuple[float, float]:
    """The time of a run on the GPU, and as the host sees it, in microseconds."""
    import torch

    for _ in range(5):  # the second run captures a graph
        start()
    torch.cuda.synchronize()
    on_gpu, on_host = [], []
    for _ in range(ROUNDS):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began = time.perf_counter()
        first.record()
        for _ in range(RUNS):
            start()
        last.record()
        torch.cuda.synchronize()
        on_host.append(1e6 * (time.perf_counter() - began) / RUNS)
        on_gpu.append(1e3 * first.elapsed_time(last) / RUNS)
    return statistics.median(on_gpu), statistics.median(on_host)


def clocks() -> str:
    """Clocks of the multiprocessors and the memory right now, in MHz, by nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.strip()


def _without_torch() -> Result | None:
    try:
        import torch
    except ImportError:
        return {"status": "skipped", "because": "PyTorch is not installed"}
    if not torch.cuda.is_available():
        return {"status": "skipped", "because": "PyTorch sees no GPU"}
    return None


def layer(case: str, dtype: str, compiled: bool = False) -> Result:
    """A layer in Baton and in PyTorch: eager, or compiled with max-autotune."""
    if lacking := _without_torch():
        return lacking
    import torch

    from scripts.gpu_kit.on_device import torch_models

    said = cases.listed(case)
    _allow_tf32(dtype == "tf32")
    stored = "float16" if dtype == "float16" else "float32"
    rng = np.random.default_rng(0)
    values = [rng.uniform(-1, 1, shape).astype(stored) for shape in said["shapes"]]
    library = load_module(cases.library(case))
    module = graph_executor.GraphModule(library["default"](cases.device()))
    module.set_input({f"x{at}": value for at, value in enumerate(values)})
    given = [torch.from_numpy(value).cuda() for value in values]
    function = torch_models.layer(said["torch"])
    if compiled:
        function = torch.compile(function, mode=COMPILED)
    module.run()
    wanted = function(*given).cpu().numpy()
    result = cases.judged(
        [module.get_output(0).numpy()], [wanted], 1e-3 if dtype == "float32" else 2e-2
    )
    return {**result, **_compared(module.run, lambda: function(*given), compiled, said["flops"])}


def model(case: str, dtype: str, compiled: bool = True) -> Result:
    """One of the six models in Baton and in PyTorch."""
    if lacking := _without_torch():
        return lacking
    import torch

    from scripts.gpu_kit.on_device import torch_models

    _allow_tf32(dtype == "tf32")
    inputs, expected = cases.values(case)
    library = cases.model_library(case, dtype)
    module = graph_executor.GraphModule(library["default"](cases.device()))
    module.set_input(inputs)
    network, given = torch_models.network(case, dtype == "float16")
    with torch.inference_mode():
        function = torch.compile(network, mode=COMPILED) if compiled else network
        wanted = [found.float().cpu().numpy() for found in function(*given)]
        theirs = cases.judged(wanted, expected, cases.listed(f"{case} {dtype}")["tolerance"])
        module.run()
        found = [module.get_output(at).numpy() for at in range(len(wanted))]
        result = cases.judged(found, expected, theirs["tolerance"])
        times = _compared(module.run, lambda: function(*given), compiled, 0.0)
    return {**result, "torch_is": theirs["status"], **times}


def _allow_tf32(allowed: bool) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True


def _compared(
    ours: Callable[[], object], theirs: Callable[[], object], compiled: bool, flops: float
) -> Result:
    baton, baton_host = microseconds(ours)
    torch_us, torch_host = microseconds(theirs)
    rates = {"tflops": 1e-6 * flops / baton, "torch_tflops": 1e-6 * flops / torch_us}
    return {
        "baton_us": baton,
        "torch_us": torch_us,
        "torch_over_baton": torch_us / baton,
        "baton_host_us": baton_host,
        "torch_host_us": torch_host,
        "torch_is_compiled": compiled,
        **(rates if flops else {}),
        "clocks": clocks(),
    }
