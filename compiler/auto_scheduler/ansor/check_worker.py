"""Compares a scheduled function with the unscheduled one; runs in a process of its own.

One JSON object per line comes in, one goes out. A damaged record may make a kernel that crashes,
hangs or writes where it must not: it then takes this process with it and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_WIDER = {"float16": "float64", "bfloat16": "float64", "float32": "float64"}
# Largest error of a right result, relative to the largest element, by the narrowest operand.
_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-4, "float64": 1e-9}
_WINOGRAD_TOLERANCE = 2e-3


def serve() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not get among the answers
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"error": compare(json.loads(line))}
        except Exception as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            answer = {"failure": reason[-1][:300]}
        answers.write(json.dumps(answer) + "\n")


def compare(request: Mapping[str, Any]) -> float:
    """Largest error of the scheduled function as a share of what is allowed; at most 1 is right.

    Parameters
    ----------
    request : dict
        "reference", "scheduled": functions as `tvm.ir.save_json` writes them; "target": a dict;
        "operands": for each input of the scheduled function the index of the reference's input
        that it is made from, and the packing; "results": how many outputs they have.
    """
    import tvm

    from .packing import Packing

    count = request["results"]
    scheduled = tvm.ir.load_json(request["scheduled"])
    reference = tvm.ir.load_json(request["reference"])
    inputs = [
        _random(np.random.default_rng(i), _shape(param), str(param.dtype))
        for i, param in enumerate(list(reference.params)[:-count])
    ]
    packings = [Packing.from_json(rows) for _, rows in request["operands"]]
    given = [
        packing.apply(np, inputs[index])
        for (index, _), packing in zip(request["operands"], packings)
    ]
    wide_text, wide_inputs = request["reference"], inputs
    for narrow, wide in _WIDER.items():
        wide_text = wide_text.replace(f'"{narrow}"', f'"{wide}"')
    wide_inputs = [x.astype(_WIDER.get(str(x.dtype), x.dtype)) for x in inputs]
    expected = _run(tvm.ir.load_json(wide_text), wide_inputs, count, {"kind": "llvm"})
    got = _run(scheduled, given, count, request["target"])
    kinds = {str(param.dtype) for param in reference.params}
    tolerance = next((limit for kind, limit in _TOLERANCE.items() if kind in kinds), 0.0)
    if any(packing.needs_values for packing in packings):
        tolerance = max(tolerance, _WINOGRAD_TOLERANCE)
    return max(map(_error, expected, got)) / tolerance if tolerance else _mismatch(expected, got)


def _error(expected: np.ndarray, got: np.ndarray) -> float:
    """Largest difference relative to the largest element; infinity where only one is a number."""
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(got)):
        return float("inf")
    if not finite.any():
        return 0.0
    expected, got = expected[finite], got[finite].astype(expected.dtype)
    return float(np.abs(expected - got).max() / max(np.abs(expected).max(), 1e-30))


def _mismatch(expected: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> float:
    return 0.0 if all(map(np.array_equal, expected, got)) else float("inf")


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype.startswith(("float", "bfloat")):
        return rng.uniform(-1, 1, shape).astype("float32" if dtype == "bfloat16" else dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype("bool")
    return rng.integers(0, 8, shape).astype(dtype)


def _run(func: Any, inputs: Sequence[np.ndarray], count: int, target: Any) -> list[np.ndarray]:
    import tvm

    from compiler.lowering.tir_pipeline import PIPELINE

    built_for = tvm.target.Target(target)
    device = tvm.device(built_for.kind.name if built_for.kind.name != "llvm" else "cpu")
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    library = tvm.compile(mod, target=built_for, tir_pipeline=PIPELINE)
    outputs = [np.zeros(_shape(param), str(param.dtype)) for param in list(func.params)[-count:]]
    arrays = [tvm.runtime.tensor(array, device) for array in (*inputs, *outputs)]
    library["main"](*arrays)
    return [array.numpy() for array in arrays[len(inputs) :]]


def _shape(param: Any) -> tuple[int, ...]:
    return tuple(int(dim) for dim in param.shape)
