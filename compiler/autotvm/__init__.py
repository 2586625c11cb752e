"""AutoTVM: tuning logs, and the contexts that apply them to a build.

with autotvm.apply_history_best("resnet18.log"):
    lib = relay.build(mod, target="llvm -mcpu=skylake-avx512", params=params)
"""

from __future__ import annotations

from typing import Any

from ..errors import LegacyImportError
from ..support.lazy_import import by_module, lazy_attributes

_MEMBERS = by_module(
    {
        "..records.autotvm.dispatcher": (
            "ApplyFixedConfig ApplyGraphBest ApplyHistoryBest DispatchContext FallbackContext "
            "apply_graph_best apply_history_best dispatcher"
        ),
        ".space": "ConfigEntity",
        ".task": (
            "ConfigSpace InstantiationError Task get_config register_topi_compute "
            "register_topi_schedule task template"
        ),
        ".env": "GLOBAL_SCOPE env",
        ".measure": "LocalBuilder LocalRunner MeasureErrorNo RPCRunner measure measure_option",
        "..records.autotvm.record": "MeasureInput decode encode load_from_buffer load_from_file",
        "..records.measure_result": "MeasureResult",
        ".callback": "callback",
        ".record": "record",
        ".tophub": "tophub",
        ".tuner": "tuner",
    }
)

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
