"""AutoTVM: tuning logs, and the contexts that apply them to a build.

with autotvm.apply_history_best("resnet18.log"):
    lib = relay.build(mod, target="llvm -mcpu=skylake-avx512", params=params)
"""

from __future__ import annotations

from ..support.lazy_import import lazy_attributes

_MEMBERS = {
    "ApplyGraphBest": "..records.autotvm.dispatcher",
    "ApplyHistoryBest": "..records.autotvm.dispatcher",
    "ConfigEntity": ".space",
    "ConfigSpace": ".task",
    "InstantiationError": ".task",
    "DispatchContext": "..records.autotvm.dispatcher",
    "FallbackContext": "..records.autotvm.dispatcher",
    "GLOBAL_SCOPE": ".env",
    "LocalBuilder": ".measure",
    "LocalRunner": ".measure",
    "MeasureErrorNo": ".measure",
    "MeasureInput": "..records.autotvm.record",
    "MeasureResult": "..records.measure_result",
    "RPCRunner": ".measure",
    "Task": ".task",
    "apply_graph_best": "..records.autotvm.dispatcher",
    "apply_history_best": "..records.autotvm.dispatcher",
    "callback": ".callback",
    "decode": "..records.autotvm.record",
    "dispatcher": "..records.autotvm.dispatcher",
    "env": ".env",
    "encode": "..records.autotvm.record",
    "get_config": ".task",
    "load_from_buffer": "..records.autotvm.record",
    "load_from_file": "..records.autotvm.record",
    "measure": ".measure",
    "measure_option": ".measure",
    "record": ".record",
    "register_topi_compute": ".task",
    "register_topi_schedule": ".task",
    "task": ".task",
    "template": ".task",
    "tophub": ".tophub",
    "tuner": ".tuner",
}

__all__ = sorted(_MEMBERS)

__getattr__ = lazy_attributes(__name__, _MEMBERS)
