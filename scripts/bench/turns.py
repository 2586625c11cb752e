"""Time functions in turn: each iteration calls all of them, so that other load slows all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def time_in_turn(
    functions: Mapping[str, Callable[[], object]],
    iterations: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Milliseconds of each call, after one call of each that is not measured.

    At least three and at most `iterations` times; between these until `seconds` have passed.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    end = time.perf_counter() + seconds
    for index in range(iterations):
        if index >= 3 and time.perf_counter() > end:
            break
        for name, function in functions.items():
            started = clock()
            function()
            times[name].append((clock() - started) * 1e3)
    return times
