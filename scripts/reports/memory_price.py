"""Predicted time of scheduled kernels that mostly move memory, from the addresses of their threads.

A warp's load or store is a request; it moves each 32-byte sector that its threads touch. Addresses
of some blocks and of some iterations of each loop are evaluated, and the counts scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from schedules.cuda.device import Device
from schedules.cuda.limits import WARP
from schedules.tir_visit import nodes_of

SECTOR = 32  # bytes
PER_CYCLE = 4
"""Sectors from the first-level cache, and instructions, in a cycle of a multiprocessor."""
WARP_CYCLES = 3
"""Cycles from one instruction of a warp to the next, where other warps don't fill them."""
TOGETHER = 32
"""Loads that a thread waits for together."""
EXPOSED = 0.1
"""Share of a unit's time that the busiest unit does not hide."""
ADDRESS, FUNCTION, START = 3, 16, 16
"""Instructions for an address, in a function such as exp, and at the start of a thread: roughly."""
BLOCKS, STEPS = 12, 32
"""How many blocks of a launch, and iterations of loops, are evaluated."""
_BINARY = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}
_OPERATIONS = (*_BINARY, tirx.Div, tirx.Cast, tirx.Select, tvm.ir.Call)
IF_THEN_ELSE = tvm.ir.Op.get("prim.if_then_else")


@dataclass
class Kernel:
    """Work of one launch, estimated from some of its blocks."""

    blocks: int
    threads: int  # of a block
    requests: float = 0.0  # of global memory, by all warps
    sectors: float = 0.0  # of all requests
    block_sectors: float = 0.0  # different ones of each block, added up
    bytes: float = 0.0  # of global buffers that are touched
    operations: float = START  # of a thread, within a factor of 3
    loads: float = 0.0  # of a thread, from global memory
    barriers: int = 0

    def seconds(self, device: Device) -> float:
        """Predicted time on the device, the launch included."""
        limits, warps = device.limits, -(-self.threads // WARP)
        # The busiest multiprocessor has this share of the blocks.
        share = ceil(self.blocks / limits.sms) / self.blocks
        issued = self.blocks * warps * self.operations / PER_CYCLE
        cycles = [share * each for each in (issued, self.sectors / PER_CYCLE, self.requests)]
        trips = (max(1.0, self.loads / TOGETHER) + self.barriers) * device.latency_cycles
        own = self.operations * WARP_CYCLES
        waves = self.blocks * warps * WARP / (limits.sms * limits.threads_per_sm)
        cycles.append(max(own, (waves - 1) * (own + trips)))
        busy = [each / device.hertz for each in cycles]
        busy += [self.block_sectors * SECTOR / device.l2_bandwidth, self.bytes / device.bandwidth]
        taken = (1 - EXPOSED) * max(busy) + EXPOSED * sum(busy)
        return device.launch_seconds + trips / device.hertz + taken


def seconds(func: tirx.PrimFunc, device: Device) -> float:
    """Predicted time of a scheduled function; infinite where its accesses can't be evaluated."""
    found = kernels(func)
    return inf if found is None else sum(kernel.seconds(device) for kernel in found)


def kernels(func: tirx.PrimFunc) -> list[Kernel] | None:
    """The launches of a scheduled function; None where accesses can't be evaluated."""
    body = func.body.block.body
    try:
        return [_Sample(n).kernel for n in (body.seq if isinstance(body, tirx.SeqStmt) else [body])]
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """A statement or an extent that can't be evaluated."""


class _Sample:
    """Threads of some blocks of a launch; arrays have an axis for each loop and one for threads."""

    def __init__(self, nest: tirx.Stmt) -> None:
        bound = [loop for loop in nodes_of(nest, tirx.For) if loop.thread_binding is not None]
        extents = {str(loop.thread_binding.thread_tag): _number(loop.extent) for loop in bound}
        grid, block = (
            [extents.get(f"{n}Idx.{xyz}", 1) for xyz in "xyz"] for n in ("block", "thread")
        )
        kernel = self.kernel = Kernel(prod(grid), prod(block))
        # Steps of the golden ratio meet edges as often as there are any.
        some = np.unique((np.arange(BLOCKS) * 0.618034 % 1 * kernel.blocks).astype(np.int64))
        sample, thread = (each.ravel() for each in np.indices((len(some), kernel.threads)))
        self.block, self.share = some[sample], kernel.blocks / len(some)
        self.warp = sample * -(-kernel.threads // WARP) + thread // WARP
        self.ids = {
            f"{name}Idx.{xyz}": linear // prod(shape[:at]) % shape[at]
            for name, linear, shape in (("block", self.block, grid), ("thread", thread, block))
            for at, xyz in enumerate("xyz")
        }
        self.values: dict[Any, np.ndarray] = {}
        self.touched: dict[Any, list[tuple[float, np.ndarray]]] = {}
        self.axes, self.lanes, self.sampled = 1, 1, 1
        self.visit(nest, np.ones(1, bool), 1.0)
        for buffer, parts in self.touched.items():
            moved = sum(sectors for sectors, _ in parts)
            kernel.sectors += moved
            kernel.bytes += min(_bytes(buffer) * prod(map(_number, buffer.shape)), SECTOR * moved)
            different = len(np.unique(np.concatenate([each for _, each in parts])))
            kernel.block_sectors += min(different * self.share, moved)

    def visit(self, stmt: Any, mask: np.ndarray, steps: float) -> None:
        """Count a statement that a thread runs `steps` times, `sampled` of them evaluated."""
        if isinstance(stmt, tirx.For):
            outer = self.axes, self.lanes, self.sampled
            self.visit(stmt.body, mask, steps * self.enter(stmt))
            self.axes, self.lanes, self.sampled = outer
        elif isinstance(stmt, tirx.SeqStmt):
            for each in stmt.seq:
                self.visit(each, mask, steps)
        elif isinstance(stmt, s_tir.SBlockRealize):
            for iterator, value in zip(stmt.block.iter_vars, stmt.iter_values):
                self.values[iterator.var] = self.value(value)
            scopes = [write.source.scope() for write in stmt.block.writes]
            self.kernel.barriers += any(scope.startswith("shared") for scope in scopes)
            self.visit(stmt.block.body, mask & self.value(stmt.predicate).astype(bool), steps)
        elif isinstance(stmt, tirx.BufferStore):
            self.expression(stmt.value, mask, steps)
            self.access(stmt.buffer, stmt.indices, mask, steps)
        else:
            raise _UnknownError

    def enter(self, loop: tirx.For) -> int:
        """Set the values of a loop's variable; how often a thread runs its body."""
        extent, binding = _number(loop.extent), loop.thread_binding
        if binding is not None and str(binding.thread_tag) in self.ids:
            self.values[loop.loop_var] = self.ids[str(binding.thread_tag)]
            return 1
        is_vector = loop.kind == tirx.ForKind.VECTORIZED
        some = extent if is_vector else max(1, min(extent, STEPS // self.sampled))
        self.values[loop.loop_var] = np.arange(some).reshape(some, *[1] * self.axes)
        self.axes += 1
        if is_vector:
            self.lanes = extent
            return 1
        self.sampled *= some
        return extent

    def expression(self, value: Any, mask: np.ndarray, steps: float) -> None:
        """Count the operations and the accesses of a value."""
        masks = {load: mask for load in nodes_of(value, tvm.ir.TensorLoad)}
        operations = len(nodes_of(value, _OPERATIONS))
        for call in nodes_of(value, tvm.ir.Call):
            if not call.op.same_as(IF_THEN_ELSE):
                operations += FUNCTION
            else:
                holds = self.value(call.args[0]).astype(bool)
                for part, taken in ((call.args[1], holds), (call.args[2], ~holds)):
                    for load in nodes_of(part, tvm.ir.TensorLoad):
                        masks[load] = masks[load] & taken
        done = set()
        for load, reached in masks.items():
            operations -= sum(len(nodes_of(index, _OPERATIONS)) for index in load.indices)
            if tvm_ffi.structural_hash(load) in done:
                continue  # nvcc loads an element once
            done.add(tvm_ffi.structural_hash(load))
            self.kernel.loads += steps * (load.source.scope() == "global")
            self.access(load.source, load.indices, reached, steps)
        self.kernel.operations += steps * self.lanes * operations

    def access(self, buffer: Any, indices: Any, mask: np.ndarray, steps: float) -> None:
        """Count a load, or a store, of vectors where the loop's elements are neighbors."""
        if buffer.scope() != "global":
            self.kernel.operations += steps * buffer.scope().startswith("shared")
            return
        at = self.address(buffer, indices)
        if self.lanes > 1 and at.ndim == self.axes:
            if (np.diff(at, axis=0) == 1).all():
                at = at[0]  # the start of the vector
                mask = mask[0] if mask.ndim == self.axes else mask
            else:
                steps *= self.lanes
        self.kernel.operations += ADDRESS * steps
        at, mask, warp, block = np.broadcast_arrays(
            at * _bytes(buffer) // SECTOR, mask, self.warp, self.block
        )
        rows = at.size // len(self.warp)  # without those of loops that do not change the address
        row = np.arange(rows).reshape(*at.shape[:-1], 1) * (self.warp[-1] + 1)
        sectors, scale = np.unique((row + warp << 36 | at)[mask]), self.share * steps / rows
        self.kernel.requests += scale * len(np.unique(sectors >> 36))
        moved = scale * len(sectors), np.unique((block << 36 | at)[mask])
        self.touched.setdefault(buffer, []).append(moved)

    def address(self, buffer: Any, indices: Any) -> np.ndarray:
        """Position of the element in a buffer."""
        at = np.zeros(1, np.int64)
        for index, extent in zip(indices, buffer.shape, strict=True):
            at = at * _number(extent) + self.value(index)
        return at

    def value(self, expression: Any) -> np.ndarray:
        """An index or a condition. What is read from memory counts as its own address."""
        function = _BINARY.get(type(expression))
        if function is not None:
            return function(self.value(expression.a), self.value(expression.b))
        if isinstance(expression, tirx.IntImm):
            return np.array([int(expression)])
        if isinstance(expression, tvm.ir.TensorLoad):
            return self.address(expression.source, expression.indices)
        if isinstance(expression, tirx.Cast):
            return self.value(expression.value)
        if expression not in self.values:
            raise _UnknownError
        return self.values[expression]


def _bytes(buffer: Any) -> int:
    """Size of an element."""
    return tvm.DataType(str(buffer.dtype)).itemsize


def _number(extent: Any) -> int:
    if not isinstance(extent, tirx.IntImm):
        raise _UnknownError
    return int(extent)
