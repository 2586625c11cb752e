"""What scripts find under `autotvm.record`: records of logs, and what picks the best of them."""

from __future__ import annotations

from ..lazy import lazy_attributes
from ..records.autotvm.record import (
    MeasureInput,
    MeasureResult,
    decode,
    encode,
    load_from_buffer,
    load_from_file,
)

__all__ = [
    "MeasureInput",
    "MeasureResult",
    "decode",
    "encode",
    "load_from_buffer",
    "load_from_file",
]

__getattr__ = lazy_attributes(
    __package__ or "",
    {
        "ApplyHistoryBest": "..records.autotvm.dispatcher",
        **dict.fromkeys(("measure_str_key", "pick_best", "split_workload"), ".picking"),
    },
)
