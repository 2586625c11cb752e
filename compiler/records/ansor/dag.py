"""The compute DAG that Ansor's steps refer to, read from an unscheduled TIR function.

Stages are numbered as Ansor numbered them: post-order, depth first, over the operands each
compute reads, in the order in which its expression names them; placeholders have numbers too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize

from schedules.tir_visit import nodes_of

from ...errors import RecordError

REDUCTION = 2
_NUMBER = re.compile(r"_?\d+$")


@dataclass(frozen=True, eq=False)
class Axis:
    """One iterator of an unscheduled compute."""

    name: str
    extent: int
    is_reduction: bool
    var: Any = None


@dataclass(frozen=True, eq=False)
class Operation:
    """A placeholder or one compute of the function."""

    name: str  # name of the operand or of the block, unique in the function
    buffer: Any  # what it is or writes
    axes: tuple[Axis, ...] = ()  # spatial ones first; none for a placeholder
    block: Any = None  # None for a placeholder
    # What it reads, in the order of first use
    producers: tuple[Operation, ...] = field(default=(), repr=False)

    @property
    def is_placeholder(self) -> bool:
        return self.block is None

    @property
    def is_reduction(self) -> bool:
        return any(axis.is_reduction for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(dim) for dim in self.buffer.shape)

    @property
    def base_name(self) -> str:
        """Its name without the number that tells it from others of that name."""
        return self.name if self.is_placeholder else _NUMBER.sub("", self.name)

    @cached_property
    def store(self) -> Any:
        """The assignment of its block."""
        return self.block.body


@dataclass(frozen=True, eq=False)
class ComputeDag:
    """Operations of a function in the order of Ansor's stage ids."""

    func: Any
    operations: tuple[Operation, ...]
    outputs: tuple[Operation, ...]

    @property
    def inputs(self) -> tuple[Operation, ...]:
        """Placeholders in the order of their stage ids, which is that of workload keys."""
        return tuple(op for op in self.operations if op.is_placeholder)

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the inputs, then of the outputs, as a workload key lists them."""
        return tuple(op.shape for op in (*self.inputs, *self.outputs))

    def input_positions(self) -> tuple[int, ...]:
        """For each input, its position among the parameters of the function."""
        params = list(self.func.params)
        return tuple(_position(params, op.buffer) for op in self.inputs)


def read_dag(func: tirx.PrimFunc) -> ComputeDag:
    """Find the stages of an unscheduled function.

    Raises RecordError: the function is not what Ansor could schedule: a dimension is unknown, or a
    block is no single assignment under its own plain loops.
    """
    params = list(func.params)
    for param in params:
        if not all(isinstance(dim, tirx.IntImm) for dim in getattr(param, "shape", [None])):
            raise RecordError(f"operand {param} has a dimension that is not a constant")
    made: dict[int, Operation] = {}
    blocks = list(_blocks(func))
    writers: dict[str, tuple[Any, tuple[Axis, ...]]] = {}
    for block, axes in blocks:
        for position, (other, _) in writers.items():
            if other.writes[0].source.same_as(block.writes[0].source):
                raise RecordError(f"{block.name_hint} and {position} write the same buffer")
        writers[block.name_hint] = (block, axes)
    order: list[Operation] = []

    def visit(buffer: Any) -> Operation:
        for op in made.values():
            if op.buffer.same_as(buffer):
                return op
        for block, axes in writers.values():
            if block.writes[0].source.same_as(buffer):
                producers = tuple(map(visit, reads_in_order(block)))
                op = Operation(str(block.name_hint), buffer, axes, block, producers)
                break
        else:
            op = Operation(str(params[_position(params, buffer)].name), buffer)
        made[len(made)] = op
        order.append(op)
        return op

    written = [b.writes[0].source for b, _ in blocks]
    results = [p for p in params if any(p.same_as(buffer) for buffer in written)]
    read = [buffer for block, _ in blocks for buffer in reads_in_order(block)]
    outputs = tuple(visit(result) for result in results if not any(result.same_as(b) for b in read))
    if len(outputs) != len(results) or sum(not op.is_placeholder for op in order) != len(blocks):
        raise RecordError("a result is read again, or a block contributes to no result")
    return ComputeDag(func, tuple(order), outputs)


def reads_in_order(block: SBlock) -> list[Any]:
    """Buffers that a block's expression loads, in the order of first use, its own excepted."""
    found: list[Any] = []
    own = block.writes[0].source
    for load in nodes_of(block.body.value, TensorLoad):
        if not load.source.same_as(own) and not any(load.source.same_as(b) for b in found):
            found.append(load.source)
    return found


def _blocks(func: tirx.PrimFunc) -> Iterator[tuple[SBlock, tuple[Axis, ...]]]:
    """The function's blocks in order, each checked and with its axes."""
    root = func.body
    if not isinstance(root, SBlockRealize) or root.block.iter_vars:
        raise RecordError("not an unscheduled function: it has no root block")
    body = root.block.body
    nests = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    for nest in nests:
        loops = []
        while isinstance(nest, tirx.For):
            loops.append(nest)
            nest = nest.body
        if not isinstance(nest, SBlockRealize):
            raise RecordError("not an unscheduled function: loops without one block inside")
        block = nest.block
        # A compute of rank 0 has one iterator that no loop drives.
        scalar = not loops and all(isinstance(v, tirx.IntImm) for v in nest.iter_values)
        plain = (
            isinstance(block.body, tirx.BufferStore)
            and len(block.writes) == 1
            and (scalar or len(loops) == len(block.iter_vars))
            and all(v.same_as(loop.loop_var) for v, loop in zip(nest.iter_values, loops))
        )
        if not plain:
            raise RecordError(f"block {block.name_hint} is not a single assignment in plain loops")
        axes = []
        for var in () if scalar else block.iter_vars:
            if not isinstance(var.dom.extent, tirx.IntImm):
                raise RecordError(f"block {block.name_hint} has an extent that is not a constant")
            name = str(var.var.name).removeprefix("v_")
            kind = int(var.iter_type) == REDUCTION
            axes.append(Axis(name, int(var.dom.extent), kind, var.var))
        if any(not b.is_reduction and a.is_reduction for a, b in itertools.pairwise(axes)):
            raise RecordError(f"block {block.name_hint} has spatial axes after reduction axes")
        yield block, tuple(axes)


def _position(params: list[Any], buffer: Any) -> int:
    for index, param in enumerate(params):
        if param.same_as(buffer):
            return index
    raise RecordError(f"{buffer.name} is read and never written")
