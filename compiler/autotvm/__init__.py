"""AutoTVM: tuning logs, the contexts that apply them to a build, and the logs shipped with Baton.

with autotvm.apply_history_best("resnet18.log"):
    lib = relay.build(mod, target="llvm -mcpu=skylake-avx512", params=params)
"""

from __future__ import annotations

from ..lazy import lazy_attributes

_MEMBERS = {
    "ApplyHistoryBest": ".dispatcher",
    "DispatchContext": ".dispatcher",
    "FallbackContext": ".dispatcher",
    "MeasureInput": ".record",
    "MeasureResult": ".record",
    "apply_history_best": ".dispatcher",
    "decode": ".record",
    "dispatcher": ".dispatcher",
    "encode": ".record",
    "load_from_file": ".record",
    "record": ".record",
    "tophub": ".tophub",
}

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
