"""Times and checks a built kernel; runs in a worker process."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..records.measure_result import MeasureResult
from .candidate import ArgInfo, Candidate, MeasureErrorNo, RunOptions

_SEED = 0
# More constants than L3 keeps; and copies of small ones, which cost little wherever they lie.
_MOST_CONSTANT_BYTES, _MOST_COPIES = 128 * 2**20, 256


def time_kernel(
    module: Any,
    device: Any,
    candidate: Candidate,
    args: Sequence[ArgInfo],
    options: RunOptions,
    ref_input: Sequence[np.ndarray] | None,
) -> MeasureResult:
    """Run "main" of a loaded library on a device, local or remote; `all_cost` covers this function.

    `args`: shapes and dtypes. `ref_input`: values of all arguments; random ones by default.
    """
    import tvm

    start = time.perf_counter()
    reference = candidate.reference() if options.check_correctness else None
    if reference is not None:
        values: Sequence[np.ndarray] = reference.arguments()
    elif ref_input is not None:
        values = ref_input
    else:
        values = random_values(args)
    tensors = [tvm.runtime.tensor(value, device) for value in values]
    run = module.get_function("main")
    run(*tensors)
    device.sync()
    if reference is not None:
        error = reference.relative_error([tensor.numpy() for tensor in tensors])
        if not error <= options.tolerance:  # also NaN
            return _result(
                start, MeasureErrorNo.WRONG_ANSWER, message=f"relative error {error:.1e}"
            )
    copies = _copies(args, options) if candidate.device == "cpu" else 1
    if copies > 1:
        constants = constant_arguments(args)
        sets = [tensors]
        for _ in range(copies - 1):
            fresh = {i: tvm.runtime.tensor(values[i], device) for i in constants}
            sets.append([fresh.get(i, tensor) for i, tensor in enumerate(tensors)])
        costs = time_in_rotation(run, sets, options)
    else:
        costs = module.time_evaluator(
            "main",
            device,
            number=options.number,
            repeat=options.repeat,
            min_repeat_ms=options.min_repeat_ms,
            f_preproc="cache_flush_cpu_non_first_arg" if options.enable_cpu_cache_flush else "",
        )(*tensors).results
    return _result(start, MeasureErrorNo.NO_ERROR, _without_extremes(costs))


def constant_arguments(args: Sequence[ArgInfo]) -> list[int]:
    """Positions of the arguments that are taken for constants.

    All but the first, which the kernel before wrote, and those of the result's shape.
    """
    return [i for i in range(1, len(args)) if args[i].shape != args[-1].shape]


def _copies(args: Sequence[ArgInfo], options: RunOptions) -> int:
    """How many copies of a kernel's constants are as large as those of the network."""
    own = sum(
        math.prod(args[i].shape) * _numpy_dtype(args[i].dtype).itemsize
        for i in constant_arguments(args)
    )
    wanted = min(options.constant_bytes, _MOST_CONSTANT_BYTES)
    return min(-(-wanted // own), _MOST_COPIES) if own else 1


def time_in_rotation(
    run: Callable[..., Any], sets: Sequence[Sequence[Any]], options: RunOptions
) -> list[float]:
    """Seconds of a run, for each repeat, with each set of arguments in turn."""
    turn = itertools.cycle(sets)

    def seconds(number: int) -> float:
        start = time.perf_counter()
        for tensors in itertools.islice(turn, number):
            run(*tensors)
        return (time.perf_counter() - start) / number

    number = max(options.number, 1)
    number = max(number, math.ceil(options.min_repeat_ms / 1e3 / seconds(number)))
    return [seconds(number) for _ in range(options.repeat)]


def _result(
    start: float, error_no: MeasureErrorNo, costs: tuple[float, ...] = (), message: str = ""
) -> MeasureResult:
    return MeasureResult(costs, error_no, time.perf_counter() - start, time.time(), message)


def _without_extremes(costs: Sequence[float]) -> tuple[float, ...]:
    """Drop the fastest and the slowest of more than two repeats."""
    left = [float(cost) for cost in costs]
    if len(left) > 2:
        left.remove(max(left))
        left.remove(min(left))
    return tuple(left)


def random_values(args: Sequence[ArgInfo]) -> list[np.ndarray]:
    """Seeded values of an argument list: floats in [0, 1), integers in [0, 8)."""
    rng = np.random.default_rng(_SEED)
    values = []
    for shape, dtype in args:
        if dtype.startswith(("int", "uint")):
            values.append(rng.integers(0, 8, shape).astype(dtype))
        elif dtype == "bool":
            values.append(rng.integers(0, 2, shape).astype(dtype))
        else:
            values.append(rng.random(shape, dtype="float32").astype(_numpy_dtype(dtype)))
    return values


def _numpy_dtype(name: str) -> Any:
    make: Callable[[str], Any] = np.dtype
    try:
        return make(name)
    except TypeError:  # bfloat16 and the small floats, which numpy lacks
        import ml_dtypes

        return getattr(ml_dtypes, name)
