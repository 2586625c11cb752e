"""AutoTVM: tuning logs, the contexts that apply them to a build, and the logs shipped with Baton.

with autotvm.apply_history_best("resnet18.log"):
    lib = relay.build(mod, target="llvm -mcpu=skylake-avx512", params=params)
"""

from __future__ import annotations

from ..lazy import lazy_attributes

_MEMBERS = {
    "ApplyGraphBest": ".dispatcher",
    "ApplyHistoryBest": ".dispatcher",
    "ConfigSpace": ".task",
    "InstantiationError": ".task",
    "DispatchContext": ".dispatcher",
    "FallbackContext": ".dispatcher",
    "LocalBuilder": ".measure",
    "LocalRunner": ".measure",
    "MeasureErrorNo": ".measure",
    "MeasureInput": ".record",
    "MeasureResult": ".record",
    "RPCRunner": ".measure",
    "Task": ".task",
    "apply_graph_best": ".dispatcher",
    "apply_history_best": ".dispatcher",
    "callback": ".callback",
    "decode": ".record",
    "dispatcher": ".dispatcher",
    "encode": ".record",
    "get_config": ".task",
    "graph_tuner": ".graph_tuner",
    "load_from_buffer": ".record",
    "load_from_file": ".record",
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
