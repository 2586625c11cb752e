"""Kernels with an auto_scheduler record: found, outlined, and scheduled from it.

A recorded kernel keeps TOPI's plain compute, since the record describes a schedule of exactly that;
so its operators are outlined from `main` before layouts are chosen:

    main: conv2d -> add -> relu -> softmax            the log has conv2d+add+relu
    main: fused_recorded(...) -> softmax              fused_recorded: conv2d -> add -> relu

A record that names a template of the schedule library leaves the operators in place, so that
blocked layouts pass from kernel to kernel. The selection of implementations then queries it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import tvm
from tvm.target import Target

from schedules.strategy import Query

from ...errors import RecordError
from ...ir.fold_scale_axis import ForwardFoldScaleAxis
from ...ir.outline_by_name import contract
from ...primfuncs.query import has_reduction
from ...records.ansor.match import Match
from ...records.auto_scheduler import log_benchmark
from ...records.auto_scheduler.record import Record, replay
from ...records.auto_scheduler.workload import workload_key
from ..graph_passes.insert_bounds_checks import indexes_at_run_time
from ..graph_passes.insert_division_checks import divides_at_run_time
from ..graph_passes.unique_names import unique_names
from ..report import LogUse
from .ansor_records import ReplayedKernels, install
from .extract import UnscheduledKernel, alone, plain_kernels
from .schedule_source import UNTUNED, ScheduleSource

if TYPE_CHECKING:
    from ..validate.validator import Checker, ValidationJob

logger = logging.getLogger("baton.lowering")

RECORD = "baton.auto_scheduler_record"


@dataclass
class Recorded:
    """A module, and the auto_scheduler records selected for its kernels."""

    mod: tvm.IRModule
    # Record that schedules the function made for each recorded kernel
    records: dict[str, Any] = field(default_factory=dict)
    # By function and variable of an operator's result, the config of a record's template
    templates: dict[str, dict[str, Query]] = field(default_factory=dict)
    # Remarks for the report on records that could not be followed to the letter
    notes: list[str] = field(default_factory=list)
    # By kernel name, what `replayed_kernels_valid` has to ask when it is compiled
    unchecked: dict[str, ValidationJob] = field(default_factory=dict)


def outline_recorded_kernels(
    mod: tvm.IRModule,
    chosen_targets: Mapping[str, Target],
    source: ScheduleSource,
    checker: Checker,
    disabled: Collection[str] = (),
) -> Recorded:
    """Outline every recorded kernel's operators; never choose `disabled` implementations."""
    records: dict[str, Any] = {}
    templates: dict[str, dict[str, Query]] = {}
    made: dict[int, Any] = {}
    if source.has_ansor_records:
        # Kernels of the module after TVM's graph passes.
        mod = tvm.transform.Sequential([ForwardFoldScaleAxis()])(mod)
    replayed = ReplayedKernels(source, checker)
    for name, target in chosen_targets.items():
        mod = unique_names(mod, name)
        found = []
        checked = _checked(mod, name)
        for kernel in plain_kernels(mod, name, target):
            if not checked.isdisjoint(kernel.bindings):
                continue
            record = _replayable_record(kernel, target, source, replayed)
            if record is not None and not _stands(kernel, record, target, source):
                continue
            if isinstance(record, Record) and record.template is not None:
                task = record.template.task
                if task in disabled:
                    replayed.notes.append(f"{record.source}: not used, {task} is disabled")
                    continue
                query = record.template.query(record.source, record.cost)
                templates.setdefault(name, {}).update(dict.fromkeys(kernel.bindings, query))
            elif record is not None:
                found.append((kernel, record))
        if not found:
            continue
        groups = [list(kernel.bindings) for kernel, _ in found]
        attrs = [{RECORD: str(index)} for index in range(len(groups))]
        before = {gvar.name_hint for gvar in mod.get_global_vars()}
        mod = contract(mod, groups, attrs, function=name)
        for gvar, function in list(mod.functions_items()):
            if gvar.name_hint in before:
                continue
            kernel, chosen = found[int(function.attrs[RECORD])]
            if isinstance(chosen, Match):
                changed = install(mod, gvar.name_hint, chosen, kernel.operators, target, made)
                if changed is None:
                    continue
                mod = changed
            records[gvar.name_hint] = chosen.record if isinstance(chosen, Match) else chosen
    unchecked = {
        made[place][1].name_hint: question
        for place, question in replayed.unchecked.items()
        if place in made
    }
    return Recorded(mod, records, templates, replayed.notes, unchecked)


def _checked(mod: tvm.IRModule, name: str) -> set[str]:
    """Variables of operators after a run-time check, whose kernels differ from the recorded one."""
    body = mod[name].body
    bindings = [b for block in getattr(body, "blocks", ()) for b in block.bindings]
    needs_check = (indexes_at_run_time, divides_at_run_time)
    return {b.var.name for b in bindings if any(needs(b.value) for needs in needs_check)}


def replayed_kernels_valid(found: Recorded, code: Mapping[str, bytes], checker: Checker) -> bool:
    """Whether all kernels that were not checked before they were compiled are right.

    The checker remembers the wrong ones, so the next `outline_recorded_kernels` skips their records
    with a warning. `code`: object code of the module's kernels by symbol.
    """
    if not found.unchecked:
        return True
    return all(verdict.right for verdict in checker.check_compiled(found.unchecked, code).values())


def _stands(
    kernel: UnscheduledKernel, chosen: Record | Match, target: Target, source: ScheduleSource
) -> bool:
    """Whether to use a record; a slower one is not used if the user wants the fastest."""
    record = chosen.record if isinstance(chosen, Match) else chosen
    key = workload_key(kernel.func)
    if source.prefers_fastest and kernel.origin is not None:
        found = log_benchmark.measured(target, key, record, partial(alone, *kernel.origin))
        return found is None or found.log_wins
    found = log_benchmark.kept(target, key, record)
    if found is not None and not found.log_wins:
        source.slower[record.source] = str(found)
    return True


def _replayable_record(
    kernel: UnscheduledKernel, target: Target, source: ScheduleSource, replayed: ReplayedKernels
) -> Record | Match | None:
    try:
        key = workload_key(kernel.func)
    except RecordError:  # a dynamic shape has no record
        return None

    def replays(record: Record) -> bool:
        if record.untuned:
            source.skipped[record.source, key.encode()] = UNTUNED
        if record.untuned or record.template is not None:
            return True
        try:
            replay(record, kernel.func, target)
        except RecordError as error:
            line = record.source.partition(":")[2]
            source.skipped[record.source, key.encode()] = str(error)
            logger.warning("%s: %s: skipped: %s", " ".join(kernel.operators), line, error)
            return False
        return True

    record = source.auto_scheduler_query(target, key, replays)
    if record is None and not has_reduction(kernel.func):
        source.auto_scheduler_queries.missing.discard(key)  # no task unless asked for
    if record is None:
        match = replayed.find(kernel, key, target)
        if match is not None:
            source.auto_scheduler_queries.note(key, match.record.source)
            source.offered.add(match.record.source)
            return match
        record = source.auto_scheduler_sample(target, kernel.func, key)
        if record is None or not replays(record):
            return None
    return None if record.untuned else record  # untuned: no schedule beats the default kernel


_TUNED_LEVEL = 3
"""The opt_level at which tasks are extracted by default."""


def warn_missing(source: ScheduleSource) -> list[str]:
    """One warning per build that counts the tasks without a record; also for the report."""
    missing, found = source.auto_scheduler_queries.missing, source.auto_scheduler_queries.found
    if not missing:
        return []
    count = len(missing) + len(found)
    note = (
        f"{len(missing)} of {count} tasks have no auto_scheduler record that can be used "
        "and take their TOPI schedule"
    )
    level = tvm.transform.PassContext.current().opt_level
    if len(missing) == count and level < _TUNED_LEVEL:
        note += (
            f"; this build is at opt_level {level}, and logs are tuned at opt_level "
            f"{_TUNED_LEVEL} as a rule, whose kernels are others: build under "
            f"PassContext(opt_level={_TUNED_LEVEL})"
        )
    logger.warning(note)
    return [note]


def warn_unused(logs: Sequence[LogUse]) -> list[str]:
    """A warning for AutoTVM logs if none has a record for the build; also for the report."""
    logs = [log for log in logs if log.kind == "topi"]
    if any(log.matching for log in logs):
        return []
    notes = [
        f"{log.log}: no record is for this build: {log.for_target} of {log.records} are for its "
        "target, and none of these is for the shapes of its operators"
        for log in logs
        if log.records
    ]
    for note in notes:
        logger.warning(note)
    return notes
