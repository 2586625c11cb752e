"""Profiles of sessions: times of kernels and runs as a Chrome trace, under onnxruntime's names."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compiler.errors import ExportError
from compiler.runtime.debugger.stopwatch import Stopwatch, trace_event
from compiler.support.atomic_file import write_file
from compiler.support.regular_files import os_errors_as
from compiler.tvm_workarounds.fast_import import tvm

if TYPE_CHECKING:
    from compiler.runtime import FactoryModule
    from compiler.runtime.session import Session


class Profiling:
    """The times of one `InferenceSession`.

    `start_ns`: when it began, in nanoseconds of `time.time_ns`.
    """

    def __init__(self) -> None:
        self.start_ns = time.time_ns()
        self._origin = time.perf_counter()
        self._libraries: list[tuple[Stopwatch, list[Any]]] = []
        self._spans: list[dict[str, Any]] = []
        self.is_on = True

    def session(self, library: FactoryModule, threads: int | None) -> Session:
        """A session of a library whose calls are timed, one request at a time."""
        stopwatch = Stopwatch([tvm.device(kind, 0) for kind in library.metadata.devices])
        self._libraries.append((stopwatch, library.metadata.report.get("kernels", [])))
        return library.session(num_threads=threads, instrument=stopwatch)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time what a block does."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self._spans.append(trace_event(name, "Session", start - self._origin, seconds))

    def write(self, prefix: str, provider: str) -> str:
        """Write the trace, a JSON list of events in the order of their start; return its path.

        Raises ExportError: the file can't be written.
        """
        self.is_on = False
        events = list(self._spans)
        for stopwatch, kernels in self._libraries:
            for event in stopwatch.trace_events(kernels, self._origin):
                if event["cat"] == "kernel":
                    event |= {"cat": "Node", "name": f"{event['name']}_kernel_time"}
                    names = " ".join(event["args"]["operators"])
                    event["args"] |= {"op_name": names, "provider": provider}
                events.append(event)
            stopwatch.start()
        events.sort(key=lambda event: float(event["ts"]))
        path = f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{self.start_ns % 1000:03}.json"
        with os_errors_as(ExportError, f"can't write the profile {path!r}"):
            write_file(path, json.dumps(events))
        return path
