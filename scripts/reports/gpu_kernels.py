#!/usr/bin/env python3
"""What a CUDA build makes of models: launches, operations on tensor cores, predicted times.

    python -m scripts.reports.gpu_kernels models/*.onnx --dtypes float32 tf32 float16 --arch sm_90

Needs neither a GPU nor nvcc: models are scheduled, not compiled. The times are predictions, not
measurements: of each kernel the price by which its schedule was chosen, or where it has none the
price of its memory accesses (`memory_price`), and its launches. The share of the roofline is what
memory and arithmetic of all kernels take at least, by that. `schedules.cuda.device` has the rates.
"""

from __future__ import annotations

import argparse
import math
import pathlib
from collections import Counter
from typing import Any

import tvm

import compiler
from compiler import relay
from compiler import target as targets
from compiler.cli.compile import BuildOptions, import_model
from compiler.cli.console import Steps
from compiler.lowering import pipeline
from compiler.lowering.bind import bind_params
from compiler.lowering.report import Kernel, Report
from compiler.lowering.selection.schedule_source import ScheduleSource
from compiler.lowering.steps import State
from schedules.cuda import device as devices
from schedules.cuda.device import Device
from schedules.cuda.verify import launches
from schedules.strategy import PREDICTED_SECONDS_ATTR
from scripts.reports import memory_price

TENSOR_CORES = ("mma", "wmma")
H100 = 90
TF32 = "tf32"
"""float32 whose products keep 10 bits of what they multiply."""


def scheduled(model: pathlib.Path, dtype: str, target: Any) -> State:
    """The state of a build behind its schedules."""
    mod, params = import_model(model, BuildOptions(target=targets.to_cli(target)), Steps())
    precision = {"baton.precision": TF32} if dtype == TF32 else {}
    if dtype not in ("float32", TF32):
        mod = relay.transform.InferType()(bind_params(mod, params)[0])
        mod, params = relay.transform.ToMixedPrecision(dtype)(mod), {}
    bound, _ = bind_params(mod, params)
    source = ScheduleSource.from_contexts()
    state = State(relay.to_relax(bound), target, source, Report("", True, 3))
    with compiler.PassContext(opt_level=3, config=precision):
        return pipeline.run(state, (*pipeline.PREPARE, *pipeline.SCHEDULE))


def on_tensor_cores(func: tvm.tirx.PrimFunc) -> bool:
    """Whether the kernel has instructions of tensor cores."""
    return any(name in func.script() for name in TENSOR_CORES)


def row(kernel: Kernel, func: tvm.tirx.PrimFunc) -> dict[str, Any]:
    """A kernel's figures for one inference."""
    accesses = memory_price.kernels(func) or []
    # The rows of a table that are not read cost nothing.
    touched = sum(each.bytes for each in accesses) or math.inf
    return {
        "name": kernel.name,
        "rule": kernel.implementation,
        "calls": kernel.calls,
        "launches": kernel.calls * launches(func),
        "flops": (kernel.flops or 0) * kernel.calls,
        "bytes": min(kernel.bytes, touched) * kernel.calls,
        "accesses": accesses,
        "tensor": on_tensor_cores(func),
        "predicted": func.attrs.get(PREDICTED_SECONDS_ATTR),
    }


def least_seconds(each: dict[str, Any], dtype: str, device: Device) -> float:
    """What the memory and the arithmetic of a kernel's calls take at least."""
    itemsize = 2 if dtype in ("float16", "bfloat16") else 4
    fmas = device.peak_tensor_bytes / itemsize if each["tensor"] else device.fmas
    peak = 2 * fmas * device.limits.sms * device.hertz
    return max(each["flops"] / peak, each["bytes"] / device.bandwidth)


def predicted_seconds(each: dict[str, Any], dtype: str, device: Device) -> float:
    """What a kernel's calls take, launches included."""
    least = least_seconds(each, dtype, device) + each["launches"] * device.launch_seconds
    priced = sum(kernel.seconds(device) for kernel in each["accesses"])
    return max(least, each["calls"] * float(each["predicted"] or priced))


def described(target: Any) -> list[Device]:
    """The devices that a target's architecture stands for here."""
    device = devices.of(target)
    return [device, devices.h200(device)] if device.limits.arch == H100 else [device]


def print_kernels(rows: list[dict[str, Any]], dtype: str, device: Device) -> None:
    """Print a line for each kernel, the most expensive first: all its calls, on one device."""
    for each in sorted(rows, key=lambda each: -predicted_seconds(each, dtype, device)):
        taken, least = (
            1e6 * function(each, dtype, device) for function in (predicted_seconds, least_seconds)
        )
        counted = [
            f"{kernel.requests:.0f} requests, {kernel.sectors:.0f} sectors"
            for kernel in each["accesses"]
        ]
        print(
            f"    {taken:8.2f} us, least {least:8.2f}, {each['launches']} launches, "
            f"{each['rule']}, {each['name']} {'; '.join(counted)}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--dtypes", nargs="+", default=["float32", TF32, "float16"])
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--kernels", action="store_true", help="one line for each kernel, too")
    arguments = parser.parse_args()
    target = targets.parse(f"cuda -arch={arguments.arch}")
    names = [device.limits.device for device in described(target)]
    times = "".join(f" {name}, us | of its roofline |" for name in names)
    print(f"| model | dtype | kernels | launches | Gflop | on tensor cores |{times} rules |")
    print(f"|---|---|---|---|---|---|{'---|---|' * len(names)}---|")
    for model in arguments.models:
        for dtype in arguments.dtypes:
            state = scheduled(model, dtype, target)
            rows = [row(each, state.mod[each.name]) for each in state.report.kernels]
            flops = sum(each["flops"] for each in rows)
            tensor = sum(each["flops"] for each in rows if each["tensor"])
            columns = ""
            for device in described(target):
                taken = sum(predicted_seconds(each, dtype, device) for each in rows)
                least = sum(least_seconds(each, dtype, device) for each in rows)
                columns += f" {1e6 * taken:.0f} | {100 * least / taken:.0f} % |"
            rules: Counter[str] = Counter()
            for each in rows:
                rules[each["rule"]] += each["launches"]
            print(
                f"| {model.stem} | {dtype} | {sum(each['calls'] for each in rows)} "
                f"| {sum(each['launches'] for each in rows)} | {flops / 1e9:.2f} "
                f"| {100 * tensor / max(flops, 1):.0f} % |{columns}"
                f" {', '.join(f'{name} {count}' for name, count in rules.most_common())} |",
                flush=True,
            )
            if arguments.kernels:
                print_kernels(rows, dtype, described(target)[0])


if __name__ == "__main__":
    main()
