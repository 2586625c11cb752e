"""Compares scheduled functions with a reference evaluation, in a child process.

One JSON object per line comes in:

    {"expect": file}                          evaluate the reference of a question, ahead of time
    {"compare": file, "code": library, "symbol": name, "runtime": TVM's}   and answer
    {"compare": file}                         compile its scheduled function first

Answers are {"error": ...} or {"failure": why}. A damaged record may make a kernel that crashes,
hangs or writes where it must not: it then takes this process with it and nothing else. TVM, which
takes a second to import, is imported only to compile; a library needs its runtime alone.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...records.ansor.packing import Packing
from .reference_eval import evaluate, places, wider

# Largest error of a right result, relative to the largest element, by the narrowest operand.
_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 1e-9}
_WINOGRAD_TOLERANCE = 2e-3
# Larger operands repeat this many random numbers; a prime, so that no two rows are equal.
_PERIOD = 65521
_ALIGNMENT = 64  # bytes; kernels assume it

Array = np.ndarray
Sample = dict[int, tuple[tuple[Array, ...], Array]]  # by tensor: indices, and correct values


def serve() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    expected: dict[str, Sample] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "expect" in request:
                question = _read(request["expect"])
                expected[request["expect"]] = expect(question)
                continue
            question = _read(request["compare"])
            known = expected.pop(request["compare"], None)
            answer: dict[str, Any] = {"error": compare(question, known, request)}
        except Exception as error:
            if "expect" in request:
                continue  # the comparison will fail in the same way, and say so
            reason = str(error).strip().splitlines() or [type(error).__name__]
            answer = {"failure": reason[-1][:300]}
        answers.write(json.dumps(answer) + "\n")


def expect(question: Mapping[str, Any]) -> Sample:
    """A sample of the right results."""
    plan = question["plan"]
    if plan is None:
        return _compiled_reference(question)
    tensors = question["tensors"]
    at = {number: places(tensors[number]["shape"], number) for number in plan["results"]}
    values = evaluate(plan, _inputs(tensors, question["results"]), at)
    return {number: (at[number], values[number]) for number in at}


def compare(
    question: Mapping[str, Any], expected: Sample | None, request: Mapping[str, Any]
) -> float:
    """Largest error of the scheduled function as a share of what is allowed; at most 1 is right.

    `question` is that of `ValidationJob.to_json`; a missing `expected` comes from `expect`.
    `request` may name a library with the compiled function.
    """
    count, tensors = question["results"], question["tensors"]
    inputs = _inputs(tensors, count)
    if expected is None:
        expected = expect(question)
    packings = [Packing.from_json(rows) for _, rows in question["operands"]]
    given = [
        packing.apply(np, inputs[index])
        for (index, _), packing in zip(question["operands"], packings)
    ]
    results = [_blank(each["shape"], each["dtype"]) for each in tensors[-count:]]
    if "code" in request:
        got = _call(_function(request), [*given, *results])[-count:]
    else:
        got = _run(question["scheduled"], given, results, question["target"])
    kinds = {each["dtype"] for each in tensors}
    tolerance = next((limit for kind, limit in _TOLERANCE.items() if kind in kinds), 0.0)
    if any(packing.needs_values for packing in packings):
        tolerance = max(tolerance, _WINOGRAD_TOLERANCE)
    first = len(tensors) - count
    pairs = [(values, got[number - first][where]) for number, (where, values) in expected.items()]
    for (values, _), array in zip(pairs, got, strict=True):
        if _has_holes(values, array):
            return math.inf
    if not tolerance:
        return 0.0 if all(np.array_equal(*pair) for pair in pairs) else math.inf
    return max(_error(*pair) for pair in pairs) / tolerance


def _has_holes(expected: Array, got: Array) -> bool:
    """Whether any element is not a number although all of the sample are: one was not written."""
    floating = np.issubdtype(got.dtype, np.floating)
    return floating and bool(np.isfinite(expected).all()) and not bool(np.isfinite(got).all())


def _error(expected: Array, got: Array) -> float:
    """Largest difference relative to the largest element; infinity where only one is a number."""
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(got)):
        return math.inf
    if not finite.any():
        return 0.0
    right, there = expected[finite].astype("float64"), got[finite].astype("float64")
    return float(np.abs(right - there).max() / max(np.abs(right).max(), 1e-30))


def _read(path: str) -> dict[str, Any]:
    return json.loads(Path(path).read_text())


def _inputs(tensors: Sequence[Mapping[str, Any]], results: int) -> list[Array]:
    return [
        _random(np.random.default_rng(number), tuple(each["shape"]), each["dtype"])
        for number, each in enumerate(tensors[:-results])
    ]


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    size = min(math.prod(shape), _PERIOD)
    if dtype.startswith(("float", "bfloat")):
        values = rng.uniform(-1, 1, size).astype("float32" if dtype == "bfloat16" else dtype)
    elif dtype == "bool":
        values = rng.integers(0, 2, size).astype("bool")
    else:
        values = rng.integers(0, 8, size).astype(dtype)
    return np.resize(values, shape)


def _blank(shape: Sequence[int], dtype: str) -> Array:
    """A result before the kernel runs: no numbers, where the type allows that."""
    blank = np.nan if dtype.startswith(("float", "bfloat")) else 0
    return np.full(tuple(shape), blank, "float32" if dtype == "bfloat16" else dtype)


# --- compiled functions ------------------------------------------------------------------


@cache
def _runtime(path: str) -> ctypes.CDLL:
    """Load the TVM runtime, whose symbols kernel libraries need."""
    return ctypes.CDLL(path, ctypes.RTLD_GLOBAL)


def _function(request: Mapping[str, Any]) -> Any:
    import tvm_ffi

    if "tvm" not in sys.modules:
        _runtime(request["runtime"])
    return tvm_ffi.load_module(request["code"], keep_module_alive=False)[request["symbol"]]


def _call(function: Any, arrays: Sequence[Array]) -> list[Array]:
    import tvm_ffi

    aligned = [_aligned(array) for array in arrays]
    function(*(tvm_ffi.from_dlpack(array) for array in aligned))
    return aligned


def _aligned(array: Array) -> Array:
    """A copy whose address is what kernels assume."""
    room = np.empty(array.nbytes + _ALIGNMENT, "uint8")
    start = -room.ctypes.data % _ALIGNMENT
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _run(text: str, inputs: Sequence[Array], results: Sequence[Array], target: Any) -> list[Array]:
    """Compile a function and run it."""
    import tvm

    from compiler.lowering.kernel_passes.pipeline import PIPELINE

    built_for = tvm.target.Target(target)
    device = tvm.device(built_for.kind.name if built_for.kind.name != "llvm" else "cpu")
    func = tvm.ir.load_json(text)
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    library = tvm.compile(mod, target=built_for, tir_pipeline=PIPELINE)
    kinds = [str(param.dtype) for param in func.params]
    arrays = [
        tvm.runtime.tensor(array.astype(kind) if kind == "bfloat16" else array, device)
        for array, kind in zip((*inputs, *results), kinds)
    ]
    library["main"](*arrays)
    return [array.numpy() for array in arrays[len(inputs) :]]


def _compiled_reference(question: Mapping[str, Any]) -> Sample:
    """All results of the unscheduled function, compiled with the widest floats."""
    count, tensors = question["results"], question["tensors"]
    text = question["reference"]
    for each in {each["dtype"] for each in tensors}:
        text = text.replace(f'"{each}"', f'"{wider(each)}"')
    inputs = [
        values.astype(wider(each["dtype"]))
        for values, each in zip(_inputs(tensors, count), tensors)
    ]
    results = [_blank(each["shape"], wider(each["dtype"])) for each in tensors[-count:]]
    right = _run(text, inputs, results, {"kind": "llvm"})
    first = len(tensors) - count
    return {
        first + number: (tuple(axis.ravel() for axis in np.indices(values.shape)), values.ravel())
        for number, values in enumerate(right)
    }
