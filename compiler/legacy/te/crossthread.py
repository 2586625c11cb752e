"""Reductions whose loop is run by threads: each reduces a part, then all combine theirs.

for the loops over results:
  in each thread: partial = reduction over the serial loops
  all threads: result = tvm_thread_allreduce(partial)
  store result
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tvm import tirx

from ...errors import ScheduleError
from .bounds import VIRTUAL_THREADS, Bounds, thread_rank
from .dataflow import combine, sequence, store_all
from .relations import constant, position, roots_of
from .stage import Stage

if TYPE_CHECKING:
    from .statements import Statements


def reduces_across_threads(bounds: Bounds, stage: Stage) -> bool:
    """Whether threads run a loop of the stage's reduction."""
    return bool(_reducing(bounds, stage))


def _reducing(bounds: Bounds, stage: Stage) -> list[Any]:
    roots = roots_of(stage.relations, stage.axes)
    found = []
    for leaf in stage.leaf_iter_vars:
        thread = bounds.thread_of(stage, leaf)
        kinds = [int(root.iter_type) == tirx.IterVar.CommReduce for root in roots[leaf.var]]
        if thread is None or not any(kinds):
            continue
        tag = str(thread.thread_tag)
        if tag.startswith(VIRTUAL_THREADS):
            raise ScheduleError(
                f"bind of stage {stage.name}: {tag} can't run the reduction {leaf.var.name}; "
                "threadIdx can"
            )
        if all(kinds) and thread_rank(tag) != 0:
            found.append(leaf)
    return found


def race_of(bounds: Bounds, stage: Stage) -> str:
    """Why parallel iterations of a reduction would overwrite each other's result; "" if none do."""
    roots = roots_of(stage.relations, stage.axes)
    for leaf in stage.leaf_iter_vars:
        kinds = [int(root.iter_type) == tirx.IterVar.CommReduce for root in roots[leaf.var]]
        thread, mark = bounds.thread_of(stage, leaf), stage.iter_var_attrs.get(leaf)
        if thread is not None and any(kinds):
            tag = str(thread.thread_tag)
            if thread_rank(tag) == 0 or not all(kinds):
                return (
                    f"bind of stage {stage.name}: {tag} can't run the reduction {leaf.var.name}; "
                    "threadIdx can"
                )
        if any(kinds) and mark is not None and mark.iter_type == tirx.IterVar.Parallelized:
            return (
                f"parallel of stage {stage.name}: {leaf.var.name} is a reduction; rfactor it first"
            )
    return ""


def cross_thread_reduction(statements: Statements, stage: Stage) -> Any:
    """The statement that computes such a stage."""
    bounds = statements.bounds
    values = bounds.axis_values(stage)
    reduce = bounds.bodies[stage][0]
    if len(reduce.init):
        raise ScheduleError(f"bind of stage {stage.name}: a reduction by threads has no init=")
    outer, serial, threads = _order(bounds, stage)
    source = [statements.read(value, values) for value in reduce.source]
    identity = list(reduce.combiner.identity_element)
    condition = statements.read(reduce.condition, values)
    for is_reduction, limit in bounds.conditions(stage):
        if is_reduction:
            condition = tirx.And(condition, tirx.likely(limit))
    dtypes = [str(value.ty.dtype) for value in source]
    before: list[Any] = []
    if serial:
        partial = [_scalar(stage, "normal_reduce_temp", i, d) for i, d in enumerate(dtypes)]
        now = [tirx.BufferLoad(buffer, [0]) for buffer in partial]
        step = store_all(
            combine(reduce.combiner, now, source),
            lambda index, value: tirx.BufferStore(partial[index], value, [0]),
        )
        if constant(condition) != 1:
            step = tirx.IfThenElse(condition, step, None)
        before = [
            *(tirx.AllocBuffer(buffer) for buffer in partial),
            *(tirx.BufferStore(b, value, [0]) for b, value in zip(partial, identity)),
            statements.nest(stage, serial, step),
        ]
        source, condition = now, tirx.const(True, "bool")
    results = [_scalar(stage, "reduce_temp", i, d) for i, d in enumerate(dtypes)]
    handles = [tirx.BufferLoad(buffer, [0]) for buffer in results]
    runners = [bounds.thread_of(stage, leaf) for leaf in threads]
    used = [thread.var for thread in runners if thread is not None]
    call = tirx.call_intrin(
        "handle", "tirx.tvm_thread_allreduce", tirx.const(len(source), "uint32"), *source,
        condition, *handles, *used,
    )  # fmt: skip
    everyone = tirx.AttrStmt(reduce.combiner, "reduce_scope", 0, tirx.Evaluate(call))
    stores = _once(statements, stage, statements.store_outputs(stage, handles, values), used)
    body = sequence(
        [*before, *(tirx.AllocBuffer(buffer) for buffer in results), everyone,
         statements.guard(stage, stores, lambda is_reduction: not is_reduction)]
    )  # fmt: skip
    return statements.nest(stage, [*outer, *threads], body)


def _order(bounds: Bounds, stage: Stage) -> tuple[list[Any], list[Any], list[Any]]:
    """Loops over results, serial loops of the reduction, loops of it that threads run."""
    threads = _reducing(bounds, stage)
    roots = roots_of(stage.relations, stage.axes)
    outer: list[Any] = []
    serial: list[Any] = []
    for leaf in stage.leaf_iter_vars:
        if position(threads, leaf) is not None:
            continue
        kinds = [int(root.iter_type) == tirx.IterVar.CommReduce for root in roots[leaf.var]]
        (serial if any(kinds) else outer).append(leaf)
    return outer, serial, threads


def _once(statements: Statements, stage: Stage, stores: Any, threads: list[Any]) -> Any:
    """Store by the first thread, unless each has a result of its own or the script says who."""
    scope = statements.bounds.scope_of(stage)
    if stage.store_predicate is not None or scope.startswith(("local", "warp")):
        return stores
    are_first = [thread.equal(tirx.const(0, str(thread.ty.dtype))) for thread in threads]
    return tirx.IfThenElse(functools.reduce(tirx.And, are_first), stores, None)


def _scalar(stage: Stage, name: str, index: int, dtype: str) -> Any:
    return tirx.decl_buffer([1], dtype, f"{stage.name}.{name}{index}", scope="local", layout=None)
