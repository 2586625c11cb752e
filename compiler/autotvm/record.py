"""`autotvm.record` of TVM: reading, writing and picking tuning records."""

from ..records.autotvm.record import MeasureInput as MeasureInput
from ..records.autotvm.record import decode as decode
from ..records.autotvm.record import encode as encode
from ..records.autotvm.record import load_from_buffer as load_from_buffer
from ..records.autotvm.record import load_from_file as load_from_file
from ..records.measure_result import MeasureResult as MeasureResult
from ..support.lazy_import import lazy_attributes

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
