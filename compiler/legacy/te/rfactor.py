"""`rfactor`: a reduction in two steps, so that one of its loops can run in parallel.

b[i] = sum over k            ->    b.rf[ki, i] = sum over ko    and    b[i] = sum over ki
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import sym, te, tirx
from tvm.ir import Range
from tvm.tirx import IterVar

from ...errors import ScheduleError
from .dataflow import compute_op, reduction_of_tuple, substitute
from .relations import (
    Fuse,
    Singleton,
    Split,
    like,
    overruns,
    pass_extents_down,
    pass_values_up,
    roots_of,
)
from .stage import Stage

if TYPE_CHECKING:
    from .schedule import Schedule


def rfactor(schedule: Schedule, tensor: Any, axis: Any, factor_axis: int) -> list[Any]:
    """Make the loop `axis` of a reduction an axis of a tensor of partial results."""
    stage = schedule[tensor]
    reduce = _reduction(stage)
    stage.refuse_layout("rfactor")
    index = stage._leaf("rfactor", axis)
    axis = stage.leaf_iter_vars[index]
    if int(axis.iter_type) != IterVar.CommReduce:
        raise ScheduleError(f"rfactor of stage {stage.name}: {axis.var.name} is not a reduction")
    op = stage.op
    rank = len(op.axis)
    at = factor_axis if factor_axis >= 0 else rank + 1 + factor_axis
    if not 0 <= at <= rank:
        raise ScheduleError(f"rfactor of stage {stage.name}: it has no axis {factor_axis}")

    parts = _Parts(stage, axis)
    own = {spatial.var: tirx.Var(spatial.var.name, spatial.var.ty) for spatial in op.axis}
    axes = [IterVar(spatial.dom, own[spatial.var], IterVar.DataPar) for spatial in op.axis]
    axes.insert(at, parts.factored)
    values = {**own, **parts.values}
    condition = substitute(reduce.condition, values)
    for extra in parts.conditions:
        condition = tirx.all(condition, tirx.likely(extra))
    partial = tirx.Reduce(
        reduce.combiner, [substitute(value, values) for value in reduce.source],
        parts.reduce_axes, condition, 0, [],
    )  # fmt: skip
    count = len(op.body)
    made = compute_op(
        f"{op.name}.rf", axes, [reduction_of_tuple(partial, i) for i in range(count)], op
    )
    added = Stage(made)
    added.group = stage.group
    for relation in parts.kept:
        _replay(added, relation)
    schedule.insert(added, schedule.index(stage))

    whole = IterVar(parts.factored.dom, f"{axis.var.name}.v", IterVar.CommReduce)
    indices: list[Any] = [spatial.var for spatial in op.axis]
    indices.insert(at, whole.var)
    source = [made.output(i)(*indices) for i in range(count)]
    total = tirx.Reduce(reduce.combiner, source, [whole], tirx.const(True, "bool"), 0, reduce.init)
    schedule.replace_op(
        stage,
        compute_op(str(op.name), op.axis, [reduction_of_tuple(total, i) for i in range(count)], op),
    )
    stage.reset_loops()
    return [made.output(i) for i in range(count)]


def _reduction(stage: Stage) -> Any:
    if not isinstance(stage.op, te.ComputeOp) or not isinstance(stage.op.body[0], tirx.Reduce):
        raise ScheduleError(f"rfactor of stage {stage.name}: it computes no reduction")
    return stage.op.body[0]


class _Parts:
    """The reduction's loops after `axis` is taken out.

    `factored`: the new spatial axis. `reduce_axes`: what is left to be reduced. `values`: the
    reduction's own axes, where they changed, in terms of these. `conditions`: what keeps uneven
    splits inside. `kept`: splits and fusions of axes that did not change.
    """

    def __init__(self, stage: Stage, axis: Any) -> None:
        op, analyzer = stage.op, sym.Analyzer()
        roots = roots_of(stage.relations, stage.axes)
        touched = {root.var for root in roots[axis.var]}
        changed = [
            relation
            for relation in stage.relations
            if any(root.var in touched for root in roots[_made(relation).var])
        ]
        self.kept = [
            relation
            for relation in stage.relations
            if all(
                int(root.iter_type) == IterVar.CommReduce and root.var not in touched
                for root in roots[_made(relation).var]
            )
            and not isinstance(relation, Singleton)
        ]
        extents = {root.var: root.dom.extent for root in op.reduce_axis}
        pass_extents_down(changed, extents, lambda _: False, analyzer)
        self.reduce_axes = [root for root in op.reduce_axis if root.var not in touched]
        values: dict[Any, Any] = {}
        for leaf in stage.leaf_iter_vars:
            if not any(root.var in touched for root in roots[leaf.var]):
                continue
            extent = extents[leaf.var]
            dom = Range(like(leaf.var, 0), extent)
            kind = IterVar.DataPar if leaf.same_as(axis) else IterVar.CommReduce
            copy = IterVar(dom, leaf.var.name, kind)
            analyzer.bind(copy.var, dom)
            values[leaf.var] = copy.var
            if leaf.same_as(axis):
                self.factored = copy
            else:
                self.reduce_axes.append(copy)
        pass_values_up(changed, extents, values)
        self.conditions = [
            condition for _, condition in overruns(changed, extents, values, analyzer)
        ]
        self.values = {
            root.var: values[root.var] + root.dom.min
            for root in op.reduce_axis
            if root.var in touched
        }


def _made(relation: Any) -> Any:
    if isinstance(relation, Split):
        return relation.outer
    return relation.fused if isinstance(relation, Fuse) else relation.iter


def _replay(stage: Stage, relation: Any) -> None:
    """Split or fuse axes of the new stage as those of the old one were, by the same loops."""
    if isinstance(relation, Split):
        index = stage._leaf("rfactor", relation.parent)
        stage.leaf_iter_vars[index : index + 1] = [relation.outer, relation.inner]
        stage.all_iter_vars += [relation.outer, relation.inner]
    else:
        index = stage._leaf("rfactor", relation.outer)
        stage.leaf_iter_vars[index : index + 2] = [relation.fused]
        stage.all_iter_vars.append(relation.fused)
    stage.relations.append(relation)
