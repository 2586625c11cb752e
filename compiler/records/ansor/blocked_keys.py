"""Whether a log has records of a convolution in NCHW over blocks of its channels.

TVM's x86 builds changed NCHW to NCHW[b]c before task extraction; builds of today lack such shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tvm import tirx

from ...errors import RecordError
from ..log_target import log_target
from .dag import ComputeDag, Operation, read_dag

if TYPE_CHECKING:
    from ..auto_scheduler.dispatcher import DispatchContext

_LARGEST_BLOCK = 64
_CONVOLUTIONS = ("conv2d_nchw", "group_conv2d_nchw")


def blocked_layout(
    func: tirx.PrimFunc, target: Any, contexts: Iterable[DispatchContext]
) -> str | None:
    """The layout of the data, as "NCHW4c", for which a log has records; None without any."""
    described, contexts = log_target(target), tuple(contexts)
    try:
        dag = read_dag(func)
    except RecordError:
        return None
    for block, dims in _blocked_dims(dag):
        for context in contexts:
            if next(iter(context.find_by_shapes(described, dims)), None) is not None:
                return f"NCHW{block}c"
    return None


def _blocked_dims(dag: ComputeDag) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Block of the data's channels, and extents of all operands, for all blocks of both."""
    for op in dag.operations:
        if op.base_name not in _CONVOLUTIONS:
            continue
        weight, data = op.producers[-1], op.producers[0]
        if data.base_name == "pad_temp":
            data = data.producers[0]
        if not (weight.is_placeholder and data.is_placeholder):
            continue
        channels, depthwise = data.shape[1], weight.shape[1] == 1
        for inner, outer in itertools.product(_blocks(channels), _blocks(op.shape[1])):
            shapes = []
            for operand in (*dag.inputs, *dag.outputs):
                if operand is weight:
                    shapes.append(_blocked_weight(operand, 1 if depthwise else inner, outer))
                else:
                    shapes.append(_blocked(operand, inner if operand is data else outer))
            if None not in shapes:
                yield inner, tuple(dim for shape in shapes for dim in shape or ())


def _blocks(channels: int) -> list[int]:
    return [n for n in range(1, min(channels, _LARGEST_BLOCK) + 1) if channels % n == 0]


def _blocked(operand: Operation, block: int) -> tuple[int, ...] | None:
    shape = (1,) * (4 - len(operand.shape)) + operand.shape
    if len(shape) != 4 or shape[1] % block:
        return None
    return (shape[0], shape[1] // block, *shape[2:], block)


def _blocked_weight(weight: Operation, inner: int, outer: int) -> tuple[int, ...] | None:
    if weight.shape[0] % outer or weight.shape[1] % inner:
        return None
    out_channels, in_channels, *kernel = weight.shape
    return (out_channels // outer, in_channels // inner, *kernel, inner, outer)
