"""auto_scheduler: tasks of a module, tuning records, and the context that applies them to a build.

tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
with auto_scheduler.ApplyHistoryBest("resnet18.json"):
    lib = relay.build(mod, target=target, params=params)
"""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import LegacyImportError
from ..support.lazy_import import lazy_attributes

_MEMBERS = {
    **dict.fromkeys(("ComputeDAG", "LayoutRewriteOption"), ".compute_dag"),
    **dict.fromkeys(("MeasureInput", "MeasureResult"), "..records.measure_pair"),
    **dict.fromkeys(("BuildResult", "MeasureErrorNo"), "..measure.candidate"),
    "ApplyHistoryBest": "..records.auto_scheduler.dispatcher",
    "ApplyHistoryBestOrSample": ".sampling",
    **dict.fromkeys(("RecordReader", "load_best", "recover_measure_input"), ".reader"),
    **dict.fromkeys(("auto_schedule", "create_task"), ".auto_schedule_07"),
    "DispatchContext": "..records.auto_scheduler.dispatcher",
    "FallbackContext": "..records.auto_scheduler.dispatcher",
    "HardwareParams": ".task",
    "RecordToFile": "..records.auto_scheduler.record",
    "SearchTask": ".task",
    "dispatcher": "..records.auto_scheduler.dispatcher",
    "extract_tasks": ".task",
    "load_best_record": "..records.auto_scheduler.record",
    "load_records": "..records.auto_scheduler.record",
    "record": "..records.auto_scheduler.record",
    "save_records": "..records.auto_scheduler.record",
    "LocalBuilder": ".search.options",
    "LocalRPCMeasureContext": ".search.options",
    "LocalRunner": ".search.options",
    **dict.fromkeys(
        (
            *("EmptyPolicy", "PreloadCustomSketchRule", "PreloadMeasuredStates", "SearchPolicy"),
            *("PythonBasedModel", "RandomModel", "SketchPolicy", "XGBModel"),
        ),
        ".search.policy",
    ),
    "ProgramMeasurer": ".search.measurer",
    **dict.fromkeys(
        ("TASK_INPUT_BUFFER_TABLE", "get_task_input_buffer", "register_task_input_buffer"),
        ".task_inputs",
    ),
    "PythonBasedMeasureCallback": ".search.callbacks",
    "RPCRunner": ".search.options",
    "TaskScheduler": ".search.scheduler",
    "TuningOptions": ".search.options",
    "make_workload_key": ".workload_registry",
    "workload_registry": ".workload_registry",
    "loop_state": ".loop_state",
    "register_workload": ".workload_registry",
}

__all__ = sorted(_MEMBERS)

# Names that TVM also had as separate modules.
_MODULES = {
    **dict.fromkeys(("cost_model", "search_policy"), ".search.policy"),
    **dict.fromkeys(("measure", "relay_integration", "search_task"), ""),
    "measure_record": ".reader",
    "task_scheduler": ".search.scheduler",
    "utils": ".workload_keys",
}

_GONE = {
    **dict.fromkeys(
        ("local_builder_build", "local_run", "rpc_runner_run"),
        "LocalBuilder().build and LocalRunner().run measure",
    ),
}


def _others(name: str) -> object:
    if name in _GONE:
        raise LegacyImportError(
            f"auto_scheduler.{name} went with Ansor's sketches: {_GONE[name]}", name=__name__
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_lazy = lazy_attributes(__name__, _MEMBERS, _others)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}{_MODULES[name]}")
    return _lazy(name)
