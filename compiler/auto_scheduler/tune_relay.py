"""`meta_schedule.relay_integration`: searches over Relay modules, over auto_scheduler's scheduler.

database = ms.relay_integration.tune_relay(mod, params, target, work_dir, max_trials_global=64)
lib = ms.relay_integration.compile_relay(database, mod, target, params)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from .. import relay
from ..errors import RecordError
from ..records.auto_scheduler.dispatcher import ApplyHistoryBest
from ..records.auto_scheduler.record import Record, RecordToFile, load_records
from .metaschedule import commit_records, is_database, read_database, records_of
from .search.callbacks import PrintTableInfo
from .search.options import TuningOptions
from .search.policy import SketchPolicy
from .search.scheduler import TaskScheduler
from .task import SearchTask
from .task import extract_tasks as _extract_tasks

_LOG = "auto_scheduler.json"
# What the search decides itself: the values of TVM 0.18 that say so.
_DEFAULTS = {
    "builder": "local",
    "cost_model": "xgb",
    "measure_callbacks": "default",
    "module_equality": "structural",
    "num_tuning_cores": "physical",
    "space": "post-order-apply",
    "strategy": "evolutionary",
    "task_scheduler": "gradient",
}


@dataclass(frozen=True)
class Database:
    """Records of a search."""

    work_dir: Path  # the folder that was tuned into

    @property
    def log(self) -> Path:
        """The log that `auto_scheduler.ApplyHistoryBest` takes."""
        return self.work_dir / _LOG


def extract_tasks(
    mod: tvm.IRModule, target: Any, params: Mapping[str, Any] | None, *, opt_level: int = 3
) -> list[SearchTask]:
    """The kernels to tune; `task.weight` says how often the module calls each."""
    return _extract_tasks(mod, params, target, opt_level=opt_level)[0]


def tune_relay(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None,
    target: Any,
    work_dir: str | Path,
    max_trials_global: int,
    *,
    num_trials_per_iter: int = 64,
    max_trials_per_task: int | None = None,
    runner: Any = "local",
    database: Any = "json",
    seed: int | None = None,
    opt_level: int = 3,
    **decided: Any,
) -> Any:
    """Search for schedules of a module's kernels.

    Parameters
    ----------
    work_dir : str or path
        Gets the log; a search that was interrupted goes on from it.
    max_trials_global, num_trials_per_iter : int
        Candidates in all, and in each round.
    max_trials_per_task
        Accepted: the scheduler shares the trials out.
    runner : "local" or an auto_scheduler runner
    database
        "json" for a `Database`, or "memory", or a database of MetaSchedule's, also a user-defined
        one: it gets the records of the log and is returned.
    **decided
        TVM's other options, with their default values.

    Raises
    ------
    RecordError
        Another value for what the search decides itself.
    """
    del max_trials_per_task
    for name, value in decided.items():
        if value != _DEFAULTS.get(name):
            raise RecordError(f"tune_relay({name}={value!r}): the search decides that itself")
    if database == "memory":
        database = tvm.s_tir.meta_schedule.database.MemoryDatabase()
    elif isinstance(database, str) and database != "json":
        raise RecordError(f"tune_relay(database={database!r}): give 'json', 'memory' or a database")
    found = Database(Path(work_dir))
    tasks, weights = _extract_tasks(mod, params, target, opt_level=opt_level)
    history = str(found.log) if found.log.exists() else None
    options = TuningOptions(
        num_measure_trials=max_trials_global,
        num_measures_per_round=num_trials_per_iter,
        runner=runner,
        measure_callbacks=[RecordToFile(found.log)],
    )
    policies = [SketchPolicy(task, seed=seed) for task in tasks]
    scheduler = TaskScheduler(tasks, weights, load_log_file=history, callbacks=[PrintTableInfo()])
    scheduler.tune(options, policies)
    if database == "json":
        return found
    records = (each for each in load_records(found.log) if isinstance(each, Record))
    commit_records(database, records)
    return database


def compile_relay(
    database: Any,
    mod: tvm.IRModule,
    target: Any,
    params: Mapping[str, Any] | None,
    *,
    backend: str = "graph",
    opt_level: int = 3,
    executor: Any = None,
    runtime: Any = None,
    pass_config: Mapping[str, Any] | None = None,
    instruments: Sequence[Any] | None = None,
) -> Any:
    """Build a module with the best records.

    Parameters
    ----------
    database
        What `tune_relay` returned, or a database of MetaSchedule's, also a user-defined one.
    backend : str
        "graph" for `relay.build`, "vm" for `relay.vm.compile`.
    pass_config, instruments
        Of the build's PassContext.

    Raises
    ------
    RecordError
        The database is neither, or the backend is not known.
    """
    if backend not in ("graph", "vm"):
        raise RecordError(f"compile_relay(backend={backend!r}): give 'graph' or 'vm'")
    records = _records(database)
    history = ApplyHistoryBest(records) if records else nullcontext()
    context = tvm.transform.PassContext(
        opt_level=opt_level, config=dict(pass_config or {}), instruments=instruments
    )
    with history, context:
        if backend == "vm":
            return relay.vm.compile(mod, target, params=params)
        return relay.build(mod, target, None, executor, runtime, params=params)


def _records(database: Any) -> list[Any]:
    if isinstance(database, Database):
        return [str(database.log)] if database.log.exists() else []
    folder = Path(str(getattr(database, "path_tuning_record", ""))).parent
    if is_database(folder):
        return list(read_database(folder))
    if not hasattr(database, "get_all_tuning_records"):
        raise RecordError(f"{type(database).__name__} is no database that compile_relay reads")
    return records_of(database.get_all_tuning_records(), type(database).__name__)
