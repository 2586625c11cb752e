"""Times and checks a built kernel; runs in a worker process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .candidate import ArgInfo, Candidate, MeasureErrorNo, MeasureResult, RunOptions

_SEED = 0


def time_kernel(
    module: Any,
    device: Any,
    candidate: Candidate,
    args: Sequence[ArgInfo],
    options: RunOptions,
    ref_input: Sequence[np.ndarray] | None,
) -> MeasureResult:
    """Run a kernel on a device, local or remote.

    Parameters
    ----------
    module
        The loaded library; its function is "main".
    args
        Shapes and dtypes of the arguments.
    ref_input : sequence of arrays, optional
        Values of all arguments; random ones by default.

    Returns
    -------
    `all_cost` covers this function.
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
    timed = module.time_evaluator(
        "main",
        device,
        number=options.number,
        repeat=options.repeat,
        min_repeat_ms=options.min_repeat_ms,
        f_preproc="cache_flush_cpu_non_first_arg" if options.enable_cpu_cache_flush else "",
    )(*tensors)
    return _result(start, MeasureErrorNo.NO_ERROR, _without_extremes(timed.results))


def _result(
    start: float, error_no: MeasureErrorNo, costs: tuple[float, ...] = (), message: str = ""
) -> MeasureResult:
    return MeasureResult(costs, error_no, time.perf_counter() - start, time.time(), message)


def _without_extremes(costs: Sequence[float]) -> tuple[float, ...]:
    """Of more than two repeats, all but the fastest and the slowest, in order."""
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
