"""The six models on CUDA without a GPU: what is launched, what it takes, whether it is right.

Models are built with the machine's nvcc and started on a mocked driver, in a process each. Without
`--run` kernels are only noted, and the models have their real sizes: how many launches, the most
registers and shared memory, what part of a multiprocessor's threads the kernels fill (mean over
launches, and the least), and bounds in microseconds on the devices of `schedules.cuda.device`: the
roofline's, which is the sum over kernels of the longer of their arithmetic's and their memory's
time, and the launches'. They predict what a model takes at least, and are not measurements.

With `--run` the models are small, their kernels run in the PTX interpreter of the tests, and the
results are compared with a build for the CPU.

    python -m scripts.conformance.cuda_models                         # all six, sm_90
    python -m scripts.conformance.cuda_models resnet18_v1 --arch sm_80 --dtype float16
    python -m scripts.conformance.cuda_models resnet18_v1 minilm --run
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from tvm.target import Target

from compiler.models import fill_weights
from schedules.cuda import device as devices
from tests import cuda_mock
from tests.ptx import ptxas

# Of results, relative to the greatest; sums are in float32 everywhere.
TOLERANCE = {"float32": 1e-4, "tf32": 5e-3, "float16": 0.02, "bfloat16": 0.1}
# Pixels and tokens of what runs in the interpreter; squeezenet1_1 pools 13 x 13 at its end.
IMAGE, TOKENS = {"squeezenet1_1": 224}, 8

CHILD = """
import json, sys, time
import numpy as np
import compiler
import tvm
from compiler import relay
from compiler.lowering.bind import bind_params
from compiler.models import fill_weights
from compiler.runtime import graph_executor
from scripts.conformance.cuda_models import shrink
from tests.cuda_mock.device import Device
from tests.test_models import example_inputs

name, arch, dtype, small = *sys.argv[1:4], sys.argv[4] == "small"
device = Device(execute=small)
model = fill_weights.hydrate(name)
if small:
    shrink(name, model)
inputs = example_inputs(model)
mod, params = relay.frontend.from_onnx(model)
exact, given = mod, params
if dtype not in ("float32", "tf32"):
    mod = relay.transform.InferType()(bind_params(mod, params)[0])
    mod, params = relay.transform.ToMixedPrecision(dtype)(mod), {}
start = time.perf_counter()
config = {"baton.precision": "tf32"} if dtype == "tf32" else {}
with compiler.PassContext(opt_level=3, config=config):
    library = relay.build(mod, target=f"cuda -arch={arch}", params=params)
seconds = time.perf_counter() - start

def results(library, device):
    module = graph_executor.GraphModule(library["default"](device))
    module.run(**inputs)
    return [module.get_output(i).numpy() for i in range(module.get_num_outputs())]

start = time.perf_counter()
found = results(library, tvm.cuda(0))
said = {
    "build": seconds,
    "run": time.perf_counter() - start,
    "images": sorted({launch.image for launch in device.launches}),
    "launches": [
        (l.kernel, l.block, l.dynamic_shared)
        for l in device.launches
        if not l.kernel.startswith("copy_into_graph")
    ],
    "problems": [str(problem) for problem in device.problems],
    "errors": [repr(error) for error in device.errors],
    "kernels": [(k.flops or 0, k.bytes, k.calls) for k in library.report.kernels],
}
if small:
    expected = results(relay.build(exact, target="llvm", params=given), tvm.cpu())
    said["difference"] = max(
        float(np.abs(got.astype(wanted.dtype) - wanted).max() / np.abs(wanted).max())
        for got, wanted in zip(found, expected)
    )
print(json.dumps(said))
"""


def shrink(name: str, model: Any) -> None:
    """Give a network few pixels, or few tokens, of which its constants know as well."""
    weights = {initializer.name for initializer in model.graph.initializer}
    del model.graph.value_info[:]
    for value in model.graph.input:
        if value.name in weights:
            continue
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4:
            dims[2].dim_value = dims[3].dim_value = IMAGE.get(name, 32)
        else:
            tokens, dims[1].dim_value = dims[1].dim_value, TOKENS
            _shrink_constants(model, tokens)


def _shrink_constants(model: Any, tokens: int) -> None:
    """Shapes with as many tokens as there were, and tables with an entry for each."""
    for initializer in model.graph.initializer:
        if tokens not in initializer.dims and initializer.data_type != onnx.TensorProto.INT64:
            continue
        values = numpy_helper.to_array(initializer)
        if values.ndim == 1 and values.dtype == np.int64:
            values = np.where(values == tokens, TOKENS, values)
        parts = tuple(slice(TOKENS if size == tokens else size) for size in values.shape)
        replacement = numpy_helper.from_array(np.ascontiguousarray(values[parts]), initializer.name)
        initializer.CopyFrom(replacement)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names; all six if none is given")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--dtype", default="float32", choices=list(TOLERANCE))
    parser.add_argument("--run", action="store_true", help="small sizes, in the interpreter")
    options = parser.parse_args()
    unknown = set(options.models) - set(fill_weights.names())
    if unknown:
        parser.error(f"there is no model {', '.join(sorted(unknown))}")
    columns = ["model", "launches"]
    if options.run:
        columns += ["difference", "problems", "build s", "run s"]
    else:
        columns += ["kernels", "registers", "spilled", "shared", "filled", "least"]
        columns += [*described(options.arch), "launch us", "build s"]
    print_row(columns)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        home = cuda_mock.make_home(pathlib.Path(folder, "home"), ptxas.NVCC)
        for name in options.models or fill_weights.names():
            size = "small" if options.run else "real"
            printed = cuda_mock.run(
                CHILD, home, name, options.arch, options.dtype, size, limit=3600
            )
            said = json.loads(printed[-1])
            if options.run:
                failures += examine_run(name, said, options.dtype)
            else:
                failures += examine(name, said, options.arch, options.dtype)
    return 1 if failures else 0


def described(arch: str) -> dict[str, devices.Device]:
    """Devices of an architecture by the names of their columns."""
    device = devices.of(Target({"kind": "cuda", "arch": arch}))
    found = {f"{device.limits.device} us": device}
    if arch == "sm_90":  # the same multiprocessors beside faster memory
        found["H200 us"] = devices.h200(device)
    return found


def print_row(values: Sequence[object]) -> None:
    """A line of the table."""
    first, *others = values
    print(f"{first!s:18}" + "".join(f"{value!s:>11}" for value in others), flush=True)


def examine_run(name: str, said: dict, dtype: str) -> int:
    """Print what a small model computed; how many things are wrong."""
    wrong = [*said["problems"], *said["errors"]]
    numbers = [
        f"{said['difference']:.1e}",
        len(wrong),
        f"{said['build']:.0f}",
        f"{said['run']:.0f}",
    ]
    print_row([name, len(said["launches"]), *numbers])
    for text in wrong[:5]:
        print(f"    {text}")
    return len(wrong) + (not said["difference"] < TOLERANCE[dtype])


def examine(name: str, said: dict, arch: str, dtype: str) -> int:
    """Print what the kernels take; how many can't be launched, or spill."""
    used: dict[str, ptxas.Resources] = {}
    for image in said["images"]:
        used.update(ptxas.resources(image, arch))
    shares, failures, shared = [], 0, 0
    for kernel, block, dynamic in said["launches"]:
        blocks, share = used[kernel].occupancy(arch, math.prod(block), dynamic)
        shares.append(share)
        shared = max(shared, used[kernel].shared + dynamic)
        if blocks == 0 or used[kernel].spilled:
            failures += 1
            print(f"    {kernel} spills {used[kernel].spilled} bytes; {blocks} blocks have room")
        if used[kernel].serialized:
            failures += 1
            print(f"    ptxas serializes the wgmma of {kernel}")
    registers = max(kernel.registers for kernel in used.values())
    spilled = sum(kernel.spilled for kernel in used.values())
    bounds = []
    for device in described(arch).values():
        fmas = device.fmas if dtype == "float32" else device.peak_tensor_bytes / 2
        peak = 2 * fmas * device.limits.sms * device.hertz
        times = (
            calls * max(flops / peak, size / device.bandwidth)
            for flops, size, calls in said["kernels"]
        )
        bounds.append(f"{1e6 * sum(times):.0f}")
    launch = len(said["launches"]) * device.launch_seconds
    mean = sum(shares) / len(shares)
    of_kernels = [len(used), registers, spilled, shared, f"{mean:.0%}", f"{min(shares):.0%}"]
    bounds += [f"{1e6 * launch:.0f}", f"{said['build']:.0f}"]
    print_row([name, len(said["launches"]), *of_kernels, *bounds])
    return failures


if __name__ == "__main__":
    sys.exit(main())
