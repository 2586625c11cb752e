"""Times of the calls that a virtual machine makes, by function and as a Chrome trace."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from compiler.tvm_workarounds.fast_import import tvm

RUNTIME = "runtime"
"""Name under which everything that is no kernel is counted: memory, shapes, copies."""

_MOST_EVENTS = 1_000_000
"""Calls that a recording keeps, as many as onnxruntime's profiler."""


class Stopwatch:
    """An instrument of the virtual machine that times each of its calls.

    Attributes
    ----------
    seconds, calls : dict of str to float, dict of str to int
        Of each function since `start`, by symbol.
    shapes : dict of str to list of str
        Of the tensors that each function was first called with: "1x4x56x56x16".
    began : float
        When the recording began, of `time.perf_counter`.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        self._accelerators = [device for device in devices if device.type != "cpu"]
        self.shapes: dict[str, list[str]] = {}
        self.start()

    def start(self) -> None:
        """Begin a new recording."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.began = time.perf_counter()
        self._events: list[tuple[str, float, float]] = []  # symbol, start and length in seconds
        self._open: list[float] = []

    def __call__(self, _: Any, symbol: str, before: bool, __: Any, *arguments: Any) -> int:
        if before:
            if symbol not in self.shapes:
                self.shapes[symbol] = _shapes(arguments)
            self._open.append(time.perf_counter())
            return 0
        for device in self._accelerators:
            device.sync()
        began = self._open.pop()
        seconds = time.perf_counter() - began
        self.seconds[symbol] += seconds
        if len(self._events) < _MOST_EVENTS:
            self._events.append((symbol, began, seconds))
        self.calls[symbol] += 1
        return 0

    def trace_events(
        self, kernels: Iterable[Mapping[str, Any]], origin: float
    ) -> list[dict[str, Any]]:
        """The calls as complete events of Chrome's trace format, whose times are microseconds.

        https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes
        the format.

        `kernels`: of the build's report, as JSON. `origin`: the trace's time 0.
        """
        known = {kernel["name"]: kernel for kernel in kernels}
        events = []
        for symbol, start, seconds in self._events:
            event = trace_event(symbol, RUNTIME, start - origin, seconds)
            if kernel := known.get(symbol):
                event["cat"] = "kernel"
                event["args"] = {
                    "nodes": kernel.get("nodes", []),
                    "operators": kernel["operators"],
                    "implementation": kernel["implementation"],
                    "schedule from": kernel["source"],
                    "shapes": self.shapes[symbol],
                }
            events.append(event)
        return events


def trace_event(name: str, category: str, start: float, seconds: float) -> dict[str, Any]:
    """A complete event of Chrome's trace format."""
    times = {"ts": start * 1e6, "dur": seconds * 1e6}
    return {"name": name, "cat": category, "ph": "X", "pid": 1, "tid": 1, **times, "args": {}}


def _shapes(arguments: Sequence[Any]) -> list[str]:
    tensors = [value for value in arguments if isinstance(value, tvm.runtime.Tensor)]
    return ["x".join(map(str, value.shape)) or "scalar" for value in tensors]
