"""AutoTVM: tuning logs, and the contexts that apply them to a build.

with autotvm.apply_history_best("resnet18.log"):
    lib = relay.build(mod, target="llvm -mcpu=skylake-avx512", params=params)
"""

from __future__ import annotations

from typing import Any

from ..errors import LegacyImportError
from ..support.lazy_import import lazy_attributes

_MEMBERS = {
    "ApplyFixedConfig": "..records.autotvm.dispatcher",
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

_EXTRACTION = "task.extract_from_program finds the tasks of a program"
GONE = {
    "TaskExtractEnv": _EXTRACTION,
    "TracingEnvironment": _EXTRACTION,
    "TracingEventType": _EXTRACTION,
    "get_workload": "a Task has its workload as an attribute",
    "feature": "XGBTuner computes the features of its cost model itself",
}
"""Names of TVM's AutoTVM that are not supported, and what to use instead."""


def raise_gone(name: str) -> Any:
    """Raise for a name that the package lacks.

    Raises
    ------
    LegacyImportError
        A name of TVM's, with what to use instead.
    AttributeError
        Any other name.
    """
    if name in GONE:
        raise LegacyImportError(f"autotvm's {name} is not supported: {GONE[name]}", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__getattr__ = lazy_attributes(__name__, _MEMBERS, raise_gone)
