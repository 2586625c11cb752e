"""`te.create_schedule`: the stages of a computation, and primitives that add stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tvm import te
from tvm.te.tensor import Operation, Tensor
from tvm.tirx import Buffer as Buffer
from tvm.tirx import IterVar as IterVar

from ...errors import ScheduleError
from ...support.depth_first import depth_first
from ...support.lazy_import import by_module, lazy_attributes
from .relations import Fuse as Fuse
from .relations import Singleton as Singleton
from .relations import Split as Split
from .stage import SCAN_UPDATE, Stage

# Functions on whole schedules, under the names that scripts know them by.
__getattr__ = lazy_attributes(
    __name__.rpartition(".")[0],
    by_module(
        {
            ".schedule_ops": (
                "AutoInlineBroadcast AutoInlineElemWise AutoInlineInjective InferBound ScheduleOps"
            )
        }
    ),
)


def create_schedule(ops: Any) -> Schedule:
    """A schedule of operations and all that they are computed from, each stage at the root.

    `ops`: what is computed in the end.
    Raises ScheduleError: something else was given.
    """
    outputs = list(ops) if not isinstance(ops, (Operation, Tensor)) else [ops]
    for op in outputs:
        if not isinstance(op, Operation):
            hint = "its .op" if isinstance(op, Tensor) else "a te.Operation"
            raise ScheduleError(f"te.create_schedule of {op!r}: give {hint}")
    return Schedule(outputs)


class Schedule:
    """The stages of a computation.

    `stages`: in an order of the computation: each after those it reads. `stage_map`: an operation
    that a primitive replaced leads to the stage that has its place.
    """

    def __init__(self, ops: Sequence[Any]) -> None:
        self.outputs = list(ops)
        self.stages: list[Stage] = []
        self.groups: list[Stage] = []
        self.stage_map: dict[Any, Stage] = {}
        for op in in_order(ops):
            stage = Stage(op)
            stage.is_output = any(op.same_as(output) for output in ops)
            self.stages.append(stage)
            self.stage_map[op] = stage
        for stage in list(self.stages):
            if isinstance(stage.op, te.ScanOp):
                self._group_scan(stage)

    def __getitem__(self, key: Any) -> Stage:
        op = key.op if isinstance(key, Tensor) else key
        stage = self.stage_map.get(op) if isinstance(op, Operation) else None
        if stage is None:
            name = op.name if isinstance(op, Operation) else repr(key)
            known = ", ".join(stage.name for stage in self.stages)
            raise ScheduleError(f"{name} is not in this schedule, whose stages are {known}")
        return stage

    def __contains__(self, key: Any) -> bool:
        return (key.op if isinstance(key, Tensor) else key) in self.stage_map

    def normalize(self) -> Schedule:
        """The schedule itself: loops start at 0 when they are made."""
        return self

    def copy(self) -> Schedule:
        """Raises: make a second schedule with the same calls."""
        raise ScheduleError("a schedule can't be copied; make another with the same calls")

    # --- groups --------------------------------------------------------------------------

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Stage:
        """A group of the stages between tensors, which `compute_at` places together.

        `include_inputs`: whether the inputs' own stages belong to it.
        """
        first = [self[tensor] for tensor in _sequence(outputs)]
        last = [self[tensor] for tensor in _sequence(inputs)]
        members = self._between(first, last, include_inputs)
        group = Stage(None, "group." + ".".join(stage.name for stage in first))
        group.group = _common_group(members)
        for member in members:
            child = member
            while child.group is not group.group and child.group is not group:
                assert child.group is not None
                child = child.group
            child.group = group
        members_of = [*self.stages, *self.groups]
        for around in (group, group.group):
            if around is not None:
                around.num_child_stages = sum(child.group is around for child in members_of)
        self.groups.append(group)
        if group.group is not None:
            group.group.num_child_stages += 1
        return group

    def _between(
        self, outputs: list[Stage], inputs: list[Stage], include_inputs: bool
    ) -> list[Stage]:
        """Outputs, and the stages that lie on a way from an input to an output."""
        depends: dict[Stage, bool] = {}
        reached: list[Stage] = []
        for stage in self.stages:  # in order of computation
            is_input = any(stage is other for other in inputs)
            depends[stage] = is_input or any(depends[read] for read in self.read_by(stage))
        waiting = list(outputs)
        while waiting:
            stage = waiting.pop()
            is_input = any(stage is other for other in inputs)
            is_member = depends[stage] or any(stage is other for other in outputs)
            if stage in reached or not is_member or (is_input and not include_inputs):
                continue
            reached.append(stage)
            if not is_input:
                waiting += self.read_by(stage)
        return reached

    def read_by(self, stage: Stage) -> list[Stage]:
        """The stages that a stage reads, as it is declared."""
        return [self[tensor] for tensor in stage.op.input_tensors]

    def _group_scan(self, stage: Stage) -> None:
        """The update of a scan is computed inside of the scan's loop."""
        scan = stage.op
        group = self.create_group(
            list(scan.update), [*scan.state_placeholder, *scan.inputs], include_inputs=False
        )
        group.attach_type, group.attach_stage = SCAN_UPDATE, stage
        group.attach_ivar = scan.scan_axis

    # --- stages that are added -----------------------------------------------------------

    def cache_read(self, tensor: Any, scope: str, readers: Any) -> Any:
        """A copy of a tensor in a memory scope, which `readers` read instead.

        Returns the copy, a tensor.
        """
        from .caching import cache_read

        return cache_read(self, tensor, scope, _sequence(readers))

    def cache_write(self, tensor: Any, scope: str) -> Any:
        """Compute a tensor (or all outputs of one operation) in a memory scope, and copy it.

        Loops that the stage has been split into already become the axes of the new tensor.

        Returns the tensor that is computed; a list of them where a list was given.
        """
        from .caching import cache_write

        made = cache_write(self, _sequence(tensor), scope)
        return made if isinstance(tensor, (list, tuple)) else made[0]

    def rfactor(self, tensor: Any, axis: Any, factor_axis: int = 0) -> Any:
        """Make a loop of a reduction an axis of a tensor of partial results.

        `axis`: a reduction loop of the stage. `factor_axis`: where the axis stands in the new
        tensor. Returns the tensor of partial results; a list of them for a reduction of several
        values.
        """
        from .rfactor import rfactor

        made = rfactor(self, tensor, axis, factor_axis)
        return made[0] if len(made) == 1 else made

    def insert(self, stage: Stage, index: int) -> None:
        """Add a stage for a new operation."""
        self.stages.insert(index, stage)
        self.stage_map[stage.op] = stage

    def replace_op(self, stage: Stage, op: Any) -> None:
        """Let a stage compute another operation; the old one still leads to it."""
        if stage.is_output:
            self.outputs = [op if old.same_as(stage.op) else old for old in self.outputs]
        stage.set_op(op)
        self.stage_map[op] = stage

    def index(self, stage: Stage) -> int:
        """The place of a stage in the order of computation."""
        return next(i for i, other in enumerate(self.stages) if other is stage)


def _sequence(value: Any) -> list[Any]:
    if isinstance(value, (Tensor, Operation)) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def in_order(ops: Sequence[Any]) -> list[Any]:
    """Operations after all that they read."""
    return list(depth_first(ops, lambda op: [tensor.op for tensor in op.input_tensors]))


def _common_group(members: Sequence[Stage]) -> Stage | None:
    """The innermost group that holds all of some stages."""

    def around(stage: Stage) -> list[Stage | None]:
        groups: list[Stage | None] = []
        at = stage.group
        while at is not None:
            groups.append(at)
            at = at.group
        return [*groups, None]

    if not members:
        return None
    return next(
        group
        for group in around(members[0])
        if all(any(group is other for other in around(member)) for member in members)
    )
