"""Building and running of candidate kernels, each in a worker process.

AutoTVM and auto_scheduler measure through this package: a `Candidate` lowers its kernel,
a builder turns it into a library, a runner times that and checks its numbers. Whatever a
candidate does to its process ends up as a `MeasureErrorNo`, and the next one is measured.
"""

from __future__ import annotations

from ..support.lazy_import import lazy_attributes

_MEMBERS = {
    "ArgInfo": ".candidate",
    "BuildResult": ".candidate",
    "Candidate": ".candidate",
    "InstantiationError": ".candidate",
    "LocalBuilder": ".builder",
    "LocalRunner": ".runner",
    "Lowered": ".candidate",
    "MeasureErrorNo": ".candidate",
    "MeasureResult": "..records.measure_result",
    "RPCRunner": ".rpc",
    "Reference": ".candidate",
    "WorkerPool": ".workers",
}

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
