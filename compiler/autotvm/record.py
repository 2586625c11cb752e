"""`autotvm.record` of TVM: reading, writing and picking tuning records."""

from __future__ import annotations

from ..records.autotvm.record import MeasureInput, decode, encode, load_from_buffer, load_from_file
from ..records.measure_result import MeasureResult
from ..support.lazy_import import lazy_attributes

__all__ = [
    "MeasureInput",
    "MeasureResult",
    "decode",
    "encode",
    "load_from_buffer",
    "load_from_file",
]

__getattr__ = lazy_attributes(
    "compiler.autotvm",
    {
        **dict.fromkeys(("measure_str_key", "pick_best", "split_workload"), ".best_records"),
        "ApplyHistoryBest": "..records.autotvm.dispatcher",
    },
)

if __name__ == "__main__":  # `python -m compiler.autotvm.record --mode pick`, as in TVM
    from .best_records import main

    main()
