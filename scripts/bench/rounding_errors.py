#!/usr/bin/env python3
"""Errors of the algorithms with fewer multiplications, beside their bounds and the direct ones.

    python -m scripts.bench.rounding_errors
    python -m scripts.bench.rounding_errors --channels 256 --trials 20 --range 1e4

Operands are random; the magnitudes within a sample span `--range`, element by element, row by row
(pixels, tokens) or channel by channel. Errors are against float64, in units of
2^-24 * max|x| * sum|w|, where the sum is over the weights of one result.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import te

from compiler.lowering.kernel_passes import pipeline as tir_pipeline
from schedules import rules, strategy
from schedules.config import ConfigEntity, option
from schedules.conv2d import Conv2dWorkload
from schedules.winograd import algorithm
from schedules.x86.conv import (
    conv2d,
    winograd,
    winograd_polyphase,
    winograd_polyphase_rules,
    winograd_rules,
)
from schedules.x86.machine.cpu import Machine
from schedules.x86.matmul import strassen, strassen_rules
from scripts.bench import error_bounds

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})
SIZE = 12
KERNELS = ((2, 2), (3, 3), (5, 5), (1, 3), (1, 5), (1, 7))


@dataclass(frozen=True)
class Case:
    """An algorithm on a shape: with Strassen's product a 1x1 convolution."""

    name: str
    workload: Conv2dWorkload
    implementation: str
    config: ConfigEntity
    bound: error_bounds.Bound


def cases(channels: int) -> Iterator[Case]:
    """Strassen's product, every tile of Winograd's that may be chosen, and a direct convolution."""
    w = _workload(channels, (1, 1))
    config = strassen_rules.conv2d_fallback(w, TARGET)
    yield Case("strassen", w, strassen.CONV2D, config, error_bounds.strassen(channels))
    for kernel in KERNELS:
        w = _workload(channels, kernel)
        for m in winograd_rules.candidates(w):
            tile = winograd.tile_of(kernel, m)
            config = _with(winograd_rules.fallback(w, TARGET), m=m)
            bound = error_bounds.winograd(tile, kernel, channels)
            yield Case(algorithm(tile, kernel), w, winograd.NAME, config, bound)
    for taps in (3, 5, 7):
        w = _workload(channels, (taps, taps), 2)
        r = winograd_polyphase.taps(taps, 2)
        for m in winograd_polyphase_rules.candidates(w):
            config = _with(winograd_polyphase_rules.fallback(w, TARGET), m=m)
            bound = error_bounds.winograd((m, m), (r, r), channels, phases=2)
            name = algorithm((m, m), (r, r), of_phases=True)
            yield Case(name, w, winograd_polyphase.NAME, config, bound)
    w = _workload(channels, (3, 3))
    impl = _implementation("conv2d_direct.x86")
    config = impl.fallback(w, TARGET)
    yield Case("direct, 3x3", w, impl.name, config, error_bounds.direct(9 * channels))


def _workload(channels: int, kernel: tuple[int, int], stride: int = 1) -> Conv2dWorkload:
    down, across = (taps // 2 for taps in kernel)
    image, strides = (1, channels, SIZE, SIZE, 16), (stride, stride)
    padding = (down, across, down, across)
    return Conv2dWorkload(*image, kernel, strides, padding, (1, 1), constant_weight=True)


def _with(config: ConfigEntity, **knobs: Any) -> ConfigEntity:
    return ConfigEntity({**config.knobs, **{name: option(knob) for name, knob in knobs.items()}})


def _implementation(name: str) -> strategy.Implementation:
    return next(impl for impl in strategy.registered("nn.conv2d", TARGET) if impl.name == name)


class Kernel:
    """A case with its weights (OIHW), compiled."""

    def __init__(self, case: Case, weight: np.ndarray) -> None:
        w, impl = case.workload, _implementation(case.implementation)
        lanes = Machine.from_target(TARGET).lanes("float32")
        assert impl.pack is not None
        self._packed = np.ascontiguousarray(impl.pack(np, weight, case.config, lanes))
        data = te.placeholder((1, w.in_channels // lanes, w.height, w.width, lanes), name="data")
        filters = te.placeholder(self._packed.shape, name="weight")
        result = impl.compute(w, case.config, data, filters)
        func = te.create_prim_func([data, filters, result])
        scheduled = rules.schedule(func, TARGET)
        assert scheduled is not None and scheduled.rule == impl.name
        main = scheduled.func.with_attr("global_symbol", "main")
        library = tvm.compile(main, target=TARGET, tir_pipeline=tir_pipeline.PIPELINE)
        self._main, self._lanes, self._workload = library["main"], lanes, w
        self.weight = weight
        self._blocks = conv2d.oc_block_of(case.config)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Of one image (C, H, W), the result (O, OH, OW)."""
        w, lanes = self._workload, self._lanes
        blocked = x.reshape(-1, lanes, w.height, w.width).transpose(0, 2, 3, 1)[np.newaxis]
        shape = (1, w.out_channels // self._blocks, w.out_height, w.out_width, self._blocks)
        result = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
        tensors = (np.ascontiguousarray(blocked), self._packed)
        self._main(*map(tvm.runtime.tensor, tensors), result)
        return result.numpy()[0].transpose(0, 3, 1, 2).reshape(-1, w.out_height, w.out_width)


def exact(w: Conv2dWorkload, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The convolution in float64."""
    top, left, bottom, right = w.padding
    padded = np.pad(x.astype("float64"), ((0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.kernel, (1, 2))
    windows = windows[:, :: w.strides[0], :: w.strides[1]]
    return np.einsum("cyxij,ocij->oyx", windows, weight.astype("float64"), optimize=True)


def images(rng: np.random.Generator, channels: int, span: float) -> Iterator[np.ndarray]:
    """Random images whose magnitudes span a range by element, by pixel, and by channel."""
    for shape in ((channels, SIZE, SIZE), (1, SIZE, SIZE), (channels, 1, 1)):
        magnitudes = span ** -rng.uniform(0, 1, shape)
        yield (rng.uniform(-1, 1, (channels, SIZE, SIZE)) * magnitudes).astype("float32")


def largest_error(case: Case, trials: int, span: float) -> tuple[float, float]:
    """(in units of 2^-24 * max|x| * sum|w|, as a share of the bound) of the worst result."""
    rng, w = np.random.default_rng(0), case.workload
    shape = (w.out_channels, w.in_channels, *w.kernel)
    kernel = Kernel(case, rng.uniform(-1, 1, shape).astype("float32"))
    sums = np.abs(kernel.weight).sum(axis=(1, 2, 3))
    in_units, of_bound = 0.0, 0.0
    for _ in range(trials):
        for x in images(rng, w.in_channels, span):
            error = np.abs(kernel(x) - exact(w, x, kernel.weight)).max(axis=(1, 2))
            largest = np.abs(x).max()
            unit = error_bounds.UNIT_ROUNDOFF * largest * sums
            in_units = max(in_units, float((error / unit).max()))
            bound = case.bound.factor * largest * np.abs(kernel.weight).max()
            of_bound = max(of_bound, float(error.max() / bound))
    return in_units, of_bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--channels", type=int, default=64, help="of the input")
    parser.add_argument("--trials", type=int, default=5, help="images of each kind")
    parser.add_argument("--range", type=float, default=1e4, dest="span", help="within a sample")
    options = parser.parse_args()
    print("| algorithm | measured | bound | growth | spread |\n|---|---|---|---|---|")
    for case in cases(options.channels):
        measured, share = largest_error(case, options.trials, options.span)
        bound = case.bound
        in_units = bound.factor / bound.products / error_bounds.UNIT_ROUNDOFF
        note = "" if share <= 1 else f" (exceeded: {share:.2f})"
        print(
            f"| {case.name} | {measured:.1f} | {in_units:.0f}{note} | {bound.growth:.1f} "
            f"| {bound.spread:.3g} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
