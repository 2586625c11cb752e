"""auto_scheduler: tasks of a module, tuning records, and the context that applies them to a build.

tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
with auto_scheduler.ApplyHistoryBest("resnet18.json"):
    lib = relay.build(mod, target=target, params=params)
"""

from __future__ import annotations

import importlib
from typing import Any

from ..support.lazy_import import by_module, lazy_attributes

_MEMBERS = by_module(
    {
        ".compute_dag": "ComputeDAG LayoutRewriteOption",
        "..records.measure_pair": "MeasureInput MeasureResult",
        "..measure.candidate": "BuildResult MeasureErrorNo",
        "..records.auto_scheduler.dispatcher": (
            "ApplyHistoryBest DispatchContext FallbackContext dispatcher"
        ),
        ".sampling": "ApplyHistoryBestOrSample",
        ".reader": "RecordReader load_best recover_measure_input",
        ".auto_schedule_07": "auto_schedule create_task",
        ".task": "HardwareParams SearchTask extract_tasks",
        "..records.auto_scheduler.record": (
            "RecordToFile load_best_record load_records record save_records"
        ),
        ".search.options": (
            "LocalBuilder LocalRPCMeasureContext LocalRunner RPCRunner TuningOptions"
        ),
        ".search.policy": (
            "EmptyPolicy PreloadCustomSketchRule PreloadMeasuredStates SearchPolicy "
            "PythonBasedModel RandomModel SketchPolicy XGBModel"
        ),
        ".search.measurer": "ProgramMeasurer",
        ".task_inputs": "TASK_INPUT_BUFFER_TABLE get_task_input_buffer register_task_input_buffer",
        ".search.callbacks": "PythonBasedMeasureCallback",
        ".search.scheduler": "TaskScheduler",
        ".workload_registry": "make_workload_key workload_registry register_workload",
        ".loop_state": "loop_state",
    }
)

__all__ = sorted(_MEMBERS)

# Names that TVM also had as separate modules.
_MODULES = {
    **dict.fromkeys(("cost_model", "search_policy"), ".search.policy"),
    **dict.fromkeys(("measure", "relay_integration", "search_task"), ""),
    "measure_record": ".reader",
    "task_scheduler": ".search.scheduler",
    "utils": ".workload_keys",
}

_lazy = lazy_attributes(__name__, _MEMBERS)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}{_MODULES[name]}")
    return _lazy(name)
