"""Cost-model features of a config: its knobs, or the loops of its kernel.

knob      the values of the knobs
itervar   for each loop: length, kind, depth, iterations outside and inside, and how the buffers
          that are touched in it move with it
curve     for each buffer: how many different elements are touched in 1, 2, 4, ... iterations
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import TensorLoad

from schedules.config import (
    AnnotateEntity,
    ConfigEntity,
    InstantiationError,
    Knob,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)

from ..task import Task, _function

_ANNOTATIONS = ("none", "unroll", "vec", "fuse")
_KINDS = ("SERIAL", "PARALLEL", "VECTORIZED", "UNROLLED", "THREAD_BINDING")
MOST_LOOPS = 24
MOST_BUFFERS = 6
CURVE_POINTS = 20


def knob_features(config: ConfigEntity, space: Mapping[str, Any]) -> np.ndarray:
    """Values of the knobs, (n,) float32: factors as logarithms, options as their place."""
    values: list[float] = []
    for name, knob in config.knobs.items():
        values += _knob(knob, space[name])
    return np.asarray(values, "float32")


def _knob(knob: Knob, candidates: list[Knob]) -> list[float]:
    if isinstance(knob, SplitEntity):
        return [math.log2(max(factor, 1)) for factor in knob.size[1:]]
    if isinstance(knob, ReorderEntity):
        return [float(place) for place in knob.perm]
    if isinstance(knob, AnnotateEntity):
        known = {name: float(place) for place, name in enumerate(_ANNOTATIONS)}
        return [known.get(str(name), -1.0) for name in knob.anns]
    assert isinstance(knob, OtherOptionEntity)
    if isinstance(knob.val, (int, float)) and not isinstance(knob.val, bool):
        return [float(knob.val)]
    return [float(candidates.index(knob))]


@dataclass
class _Loop:
    var: Any
    extent: int
    kind: int
    depth: int
    outside: int
    inside: int = 1
    touches: dict[str, list[float]] = field(default_factory=dict)


def loops_of(task: Task, config: ConfigEntity) -> list[_Loop]:
    """Loops of a config's kernel, outer before inner, with what is touched in them."""
    try:
        made, tensors = task.instantiate(config)
    except Exception as error:  # whatever a user's template raises is its refusal of the config
        raise InstantiationError(str(error)) from error
    mod = tvm.IRModule({"main": _function(made, tensors)})
    flat = tvm.transform.Sequential(
        [
            tvm.s_tir.transform.LowerInitBlock(),
            tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            tvm.s_tir.transform.ConvertBlocksToOpaque(),
        ]
    )(mod)["main"]
    loops: list[_Loop] = []
    nest: list[_Loop] = []

    def enter(loop: Any, visitor: Any) -> None:
        extent = int(getattr(loop.extent, "value", 1))
        outside = math.prod(each.extent for each in nest)
        kind = _KINDS.index(tirx.ForKind(loop.kind).name) if loop.kind < len(_KINDS) else 0
        made = _Loop(loop.loop_var, extent, kind, len(nest), outside)
        for each in nest:
            each.inside = max(each.inside, outside * extent // max(each.outside, 1))
        loops.append(made)
        nest.append(made)
        visitor.default_visit(loop)
        nest.pop()

    def access(node: Any, visitor: Any) -> None:
        buffer = node.buffer if hasattr(node, "buffer") else node.source
        _note_access(nest, buffer, list(node.indices))
        visitor.default_visit(node)

    tvm_ffi.structural_visit(
        flat.body, [(tirx.For, enter), (TensorLoad, access), (tirx.BufferStore, access)]
    )
    return loops


def _note_access(nest: list[_Loop], buffer: Any, indices: list[Any]) -> None:
    """Stride and number of elements of one access, for each loop around it."""
    shape = [int(getattr(dim, "value", 1)) for dim in buffer.shape]
    flat: Any = 0
    for index, dim in zip(indices, shape):
        flat = flat * dim + index
    linear = sym.detect_linear_equation(flat, [loop.var for loop in nest])
    touched = 1
    for place in reversed(range(len(nest))):
        loop = nest[place]
        stride = _stride(linear, place)
        if stride:
            touched *= loop.extent
        loop.touches[str(buffer.name)] = [float(stride), float(touched)]


def _stride(linear: Any, place: int) -> int:
    """Coefficient of a loop variable; 1 where the index is not a linear expression of it."""
    if not linear:
        return 1
    return abs(int(getattr(linear[place], "value", 1)))


def itervar_features(task: Task, config: ConfigEntity) -> np.ndarray:
    """Features of the first MOST_LOOPS loops, (n,) float32."""
    rows = []
    for loop in loops_of(task, config)[:MOST_LOOPS]:
        kind = [0.0] * len(_KINDS)
        kind[loop.kind] = 1.0
        row = [_log(loop.extent), float(loop.depth), _log(loop.outside), _log(loop.inside), *kind]
        touches = [loop.touches[name] for name in sorted(loop.touches)][:MOST_BUFFERS]
        for stride, touched in touches:
            row += [_log(stride), _log(touched)]
        rows.append(row + [0.0] * (2 * (MOST_BUFFERS - len(touches))))
    width = 4 + len(_KINDS) + 2 * MOST_BUFFERS
    table = np.zeros((MOST_LOOPS, width), "float32")
    if rows:
        table[: len(rows)] = rows
    return table.ravel()


def curve_features(task: Task, config: ConfigEntity) -> np.ndarray:
    """Logarithms of the elements touched in 1, 2, 4, ... iterations, (n,) float32."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for loop in loops_of(task, config):
        for name, (_, touched) in loop.touches.items():
            iterations = loop.extent * loop.inside
            curves.setdefault(name, []).append((_log(iterations), _log(touched)))
    table = np.zeros((MOST_BUFFERS, CURVE_POINTS), "float32")
    for row, name in enumerate(sorted(curves)[:MOST_BUFFERS]):
        points = sorted(curves[name])
        table[row] = np.interp(
            range(CURVE_POINTS), [p[0] for p in points], [p[1] for p in points], left=0
        )
    return table.ravel()


def _log(value: float) -> float:
    return math.log2(value + 1)
