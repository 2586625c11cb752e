"""Kernels for which an auto_scheduler record exists: found, set aside, and scheduled from it.

A recorded kernel keeps TOPI's plain compute, since the record describes a schedule of exactly that;
so its operators leave `main` for a function of their own before layouts are chosen:

    main: conv2d -> add -> relu -> softmax            the log has conv2d+add+relu
    main: fused_recorded(...) -> softmax              fused_recorded: conv2d -> add -> relu
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm.target import Target

from ..errors import RecordError
from ..partition import contract
from .extract import PlainKernel, plain_kernels
from .report import Kernel
from .schedule_source import ScheduleSource

logger = logging.getLogger("baton.lowering")

RECORD = "baton.auto_scheduler_record"


def set_aside(
    mod: tvm.IRModule, chosen_targets: Mapping[str, Target], source: ScheduleSource
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Move the operators of every recorded kernel to a function of their own.

    Returns
    -------
    The module, and for each new function the record that schedules its one kernel.
    """
    records: dict[str, Any] = {}
    for name, target in chosen_targets.items():
        groups: list[list[str]] = []
        found = []
        for kernel in plain_kernels(mod, name, target):
            record = _replayable_record(kernel, target, source)
            if record is not None:
                groups.append(list(kernel.bindings))
                found.append(record)
        if not groups:
            continue
        attrs = [{RECORD: str(index)} for index in range(len(groups))]
        before = {gvar.name_hint for gvar in mod.get_global_vars()}
        mod = contract(mod, groups, attrs, function=name)
        for gvar, function in mod.functions_items():
            if gvar.name_hint not in before:
                records[gvar.name_hint] = found[int(function.attrs[RECORD])]
    return mod, records


def _replayable_record(kernel: PlainKernel, target: Target, source: ScheduleSource) -> Any | None:
    from ..auto_scheduler.record import replay
    from ..auto_scheduler.workload import workload_key

    record = source.auto_scheduler_query(target, workload_key(kernel.func))
    if record is None:
        return None
    try:
        replay(record, kernel.func, target)
    except RecordError as error:
        logger.warning("%s: %s; it takes its TOPI schedule", " ".join(kernel.operators), error)
        return None
    return record


def warn_missing(kernels: Sequence[Kernel]) -> list[str]:
    """One warning per build that counts the kernels without a record; also for the report."""
    missing = [k for k in kernels if not k.source.startswith("auto_scheduler:")]
    if not missing:
        return []
    note = (
        f"{len(missing)} of {len(kernels)} kernels have no auto_scheduler record "
        "and take their TOPI schedule"
    )
    logger.warning(note)
    return [note]
