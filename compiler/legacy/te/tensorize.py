"""`Stage.tensorize`: replace loops by an intrinsic, after a check that it computes the same.

for outer loops:                      for outer loops:
  for i, j, k in the intrinsic's        intrin(c[tile], a[tile], b[tile])
    c[...] += a[...] * b[...]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import IntervalSet

from schedules.tir_visit import nodes_of

from ...errors import ScheduleError
from .dataflow import loads, map_loads, sequence, strides_of, substitute
from .intrin import TensorIntrin
from .relations import constant, like
from .stage import Stage

if TYPE_CHECKING:
    from .statements import Statements

Place = list[Any]


def tensorized_loop(stage: Stage) -> int | None:
    """Which loop of a stage is the outermost that an intrinsic computes."""
    for index, leaf in enumerate(stage.leaf_iter_vars):
        mark = stage.iter_var_attrs.get(leaf)
        if mark is not None and mark.tensor_intrin is not None:
            return index
    return None


def tensorized(statements: Statements, stage: Stage) -> Any:
    """The loops outside of the intrinsic, and the intrinsic.

    Raises ScheduleError: the intrinsic computes something else, or on other shapes, than the loops
    it is to replace.
    """
    at = tensorized_loop(stage)
    assert at is not None
    return _Tensorize(statements, stage, at).make()


@dataclass(frozen=True, eq=False)
class _Tile:
    """The part of an axis that the intrinsic works on."""

    base: Any
    extent: Any


class _Tensorize:
    def __init__(self, statements: Statements, stage: Stage, at: int) -> None:
        self.statements = statements
        self.bounds = statements.bounds
        self.simplify = statements.bounds.analyzer.simplify
        self.stage = stage
        self.at = at
        self.outer = stage.leaf_iter_vars[:at]
        self.inner = stage.leaf_iter_vars[at:]
        leaf = stage.leaf_iter_vars[at]
        self.intrin: TensorIntrin = stage.iter_var_attrs[leaf].tensor_intrin

    def _refuse(self, reason: str) -> NoReturn:
        loop = self.stage.leaf_iter_vars[self.at].var.name
        raise ScheduleError(
            f"tensorize of stage {self.stage.name} at {loop} by {self.intrin.name}: {reason}"
        )

    def make(self) -> Any:
        """The statement."""
        stage = self.stage
        tiles = {axis.var: self._tile(axis) for axis in stage.axes}
        spatial = self._match_axes("axis", list(stage.op.axis), list(self.intrin.op.axis), tiles)
        reduction = self._match_axes(
            "reduction", list(stage.op.reduce_axis), list(self.intrin.op.reduce_axis), tiles
        )
        places = self._match_bodies({**spatial, **reduction})
        outputs = [
            self._bind(buffer, stage, index, [tiles[axis.var].base for axis in stage.op.axis])
            for index, buffer in enumerate(self.intrin.buffers[len(self.intrin.inputs) :])
        ]
        inputs = [
            self._bind(buffer, *places[tensor])
            for tensor, buffer in zip(self.intrin.inputs, self.intrin.buffers)
        ]
        bindings = [*inputs, *outputs]
        scalars = self._scalars(
            {axis.var: tile.base for axis, tile in zip(stage.axes, tiles.values())}
        )
        return self._loops(lambda part: substitute(_apply(part, bindings), scalars))

    def _scalars(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """Values that a call passes for the intrinsic's scalars."""
        given = self.intrin.scalar_values
        return {param: substitute(value, values) for param, value in given.items()}

    # --- matching ------------------------------------------------------------------------

    def _tile(self, axis: Any) -> _Tile:
        """Base and extent of an axis over the inner loops."""
        value = self.bounds.axis_values(self.stage)[axis.var]
        inner = {
            leaf.var: IntervalSet(like(leaf.var, 0), self.bounds.extents[leaf.var] - 1)
            for leaf in self.inner
        }
        zeros = {leaf.var: like(leaf.var, 0) for leaf in self.inner}
        base = self.simplify(substitute(value, zeros))
        span = self.bounds.analyzer.int_set(self.simplify(value), inner)
        return _Tile(base, self.simplify(span.max_value - span.min_value + 1))

    def _match_axes(
        self, kind: str, axes: list[Any], expected: list[Any], tiles: dict[Any, _Tile]
    ) -> dict[Any, Any]:
        """Axes of the stage in terms of the intrinsic's; leading ones have one element."""
        extra = len(axes) - len(expected)
        if extra < 0:
            self._refuse(f"it has {len(expected)} {kind} dimensions, and the stage {len(axes)}")
        values = {}
        for number, axis in enumerate(axes):
            tile = tiles[axis.var]
            if number < extra:
                if constant(tile.extent) != 1:
                    self._refuse(
                        f"{axis.var.name} has {tile.extent} elements inside of the loop, and the "
                        "intrinsic no such dimension; split it and move the inner part out"
                    )
                values[axis.var] = tile.base
                continue
            own = expected[number - extra]
            if not self.bounds.analyzer.can_prove_equal(tile.extent, own.dom.extent):
                self._refuse(
                    f"{axis.var.name} has {tile.extent} elements inside of the loop, and the "
                    f"intrinsic's {own.var.name} {own.dom.extent}"
                )
            values[axis.var] = tile.base + (own.var - own.dom.min)
        return values

    def _match_bodies(self, values: dict[Any, Any]) -> dict[Any, tuple[Stage, int, Place]]:
        """Check that both compute the same; where the intrinsic's inputs lie."""
        own_axes = [*self.intrin.op.axis, *self.intrin.op.reduce_axis]
        scalars = self._scalars(values)
        firsts = {axis.var: axis.dom.min for axis in own_axes}
        single = {a.var: a.dom.min for a in own_axes if constant(a.dom.extent) == 1}
        places: dict[Any, tuple[Stage, int, Place]] = {}
        bodies = self.bounds.bodies[self.stage]
        expected_bodies = list(self.intrin.op.body)
        if len(bodies) != len(expected_bodies):
            self._refuse(f"it has {len(expected_bodies)} outputs, and the stage {len(bodies)}")
        for body, expected in zip(bodies, expected_bodies):
            for ours, theirs in self._pairs(body, expected):
                theirs = substitute(theirs, scalars)
                moved = substitute(ours, values)
                wanted = list(loads(theirs))
                found = list(loads(moved))
                if len(wanted) != len(found):
                    self._differ(ours, theirs)
                queue = iter(wanted)

                def as_theirs(tensor: Any, indices: Place, queue: Any = queue) -> Any:
                    own, _ = next(queue)
                    base = [self.simplify(substitute(index, firsts)) for index in indices]
                    self._note(places, own, tensor, base)
                    shift = len(indices) - len(own.shape)
                    local = [self.simplify(i - b) for i, b in zip(indices, base)]
                    lead = [self.simplify(substitute(i, single)) for i in local[: max(shift, 0)]]
                    if shift < 0 or any(constant(index) != 0 for index in lead):
                        self._refuse(f"it reads {own.op.name} of {len(own.shape)} dimensions")
                    return own(*local[shift:])

                mine = self.simplify(map_loads(moved, as_theirs))
                if not tvm_ffi.structural_equal(mine, self.simplify(theirs)):
                    self._differ(mine, theirs)
        return places

    def _pairs(self, body: Any, expected: Any) -> list[tuple[Any, Any]]:
        """Expressions that must be equal."""
        is_reduction = isinstance(body, tirx.Reduce)
        if is_reduction != isinstance(expected, tirx.Reduce):
            self._refuse("of the stage and the intrinsic, only one is a reduction")
        if not is_reduction:
            return [(body, expected)]
        if not tvm_ffi.structural_equal(body.combiner, expected.combiner):
            self._refuse("the reductions combine their values differently")
        sources = list(zip(body.source, expected.source))
        return [*sources, (body.condition, expected.condition)]

    def _note(self, places: dict[Any, Any], own: Any, tensor: Any, base: Place) -> None:
        source = (self.statements.schedule[tensor], int(tensor.value_index), base)
        before = places.setdefault(own, source)
        same = before[:2] == source[:2] and all(
            self.bounds.analyzer.can_prove_equal(a, b) for a, b in zip(before[2], base)
        )
        if not same:
            self._refuse(f"its input {own.op.name} stands for two places of the stage's inputs")

    def _differ(self, ours: Any, theirs: Any) -> NoReturn:
        self._refuse(f"it computes {theirs}, and the stage {ours}")

    # --- buffers -------------------------------------------------------------------------

    def _bind(self, placeholder: Any, stage: Stage, index: int, base: Place) -> _Binding:
        if stage.layouts:
            self._refuse(f"transform_layout changed how {stage.name} lies in memory")
        buffer = self.statements.buffer(stage, index)
        place = self.statements.place_in_buffer(stage, index, base)
        scope, expected = (str(b.scope()) or "global" for b in (buffer, placeholder))
        if scope != expected:
            self._refuse(f"{placeholder.name} must lie in {expected}, and {stage.name} is {scope}")
        shift = len(place) - len(placeholder.shape)
        strides = [self.simplify(stride) for stride in strides_of(buffer)]
        values = {}
        offset: Any = buffer.elem_offset if buffer.elem_offset is not None else 0
        for where, stride in zip(place, strides):
            offset = offset + where * stride
        offset = self.simplify(offset)
        factor = int(placeholder.ty.offset_factor)
        if factor > 1 and not self.bounds.analyzer.can_prove(
            tirx.floormod(offset, factor).equal(tirx.const(0, str(offset.ty.dtype)))
        ):
            self._refuse(f"{placeholder.name} must lie at a multiple of {factor} elements")
        if isinstance(placeholder.elem_offset, tirx.Var):
            values[placeholder.elem_offset] = offset
        declared = strides_of(placeholder)
        for extent, said, real in zip(placeholder.shape, declared, strides[shift:]):
            if isinstance(said, tirx.Var):
                values[said] = real
            elif constant(extent) != 1 and not self.bounds.analyzer.can_prove_equal(said, real):
                self._refuse(
                    f"{placeholder.name} has the stride {said}, and {stage.name} there {real}; "
                    "declare a buffer with strides"
                )
        return _Binding(placeholder, buffer, place, shift, values)

    # --- loops ---------------------------------------------------------------------------

    def _loops(self, apply: Any) -> Any:
        statements, stage, intrin = self.statements, self.stage, self.intrin
        self._check_conditions()
        reducing = [leaf for leaf in self.outer if statements.is_reduction(stage, leaf)]
        if not reducing:
            if intrin.body is None:
                self._refuse("it has no body for a whole reduction")
            return statements.nest(stage, self.outer, self._guard(apply(intrin.body), True))
        if intrin.reduce_update is None:
            self._refuse("a part of the reduction is outside, and it has no reduce_update")
        first = statements.first_reduction(stage)
        if intrin.reduce_init is None:
            is_first: Any = None
            for leaf in reducing:
                here = tirx.EQ(self.bounds.loop_value(stage, leaf), like(leaf.var, 0))
                is_first = here if is_first is None else tirx.And(is_first, here)
            if intrin.body is None:
                self._refuse("it has neither a body nor a reduce_init")
            step = tirx.IfThenElse(is_first, apply(intrin.body), apply(intrin.reduce_update))
            return statements.nest(stage, self.outer, self._guard(step, True))
        init = statements.init_nest(
            stage, self.outer[first:], self._guard(apply(intrin.reduce_init), False)
        )
        update = statements.nest(
            stage, self.outer[first:], self._guard(apply(intrin.reduce_update), True)
        )
        return statements.nest(stage, self.outer[:first], sequence([init, update]))

    def _guard(self, body: Any, with_reductions: bool) -> Any:
        return self.statements.guard(
            self.stage, body, lambda is_reduction: with_reductions or not is_reduction
        )

    def _check_conditions(self) -> None:
        """An intrinsic computes all of its tile, so that no condition may cut it."""
        inner = {leaf.var for leaf in self.inner}
        for _, condition in self.bounds.conditions(self.stage):
            if any(var in inner for var in nodes_of(condition, tirx.Var)):
                self._refuse(f"the loops do not divide evenly: {condition} cuts the tile")


@dataclass(frozen=True, eq=False)
class _Binding:
    """An intrinsic's buffer and where it lies: from `place` on, in the last dimensions."""

    placeholder: Any
    buffer: Any
    place: Place
    shift: int
    values: dict[Any, Any]

    def indices(self, own: Sequence[Any]) -> list[Any]:
        lead = self.place[: self.shift]
        return [*lead, *(first + index for first, index in zip(self.place[self.shift :], own))]


def _apply(body: Any, bindings: Sequence[_Binding]) -> Any:
    """The intrinsic's statement on the stage's buffers."""

    def of(buffer: Any) -> _Binding | None:
        return next((b for b in bindings if buffer.same_as(b.placeholder)), None)

    def load(node: Any) -> Any:
        bound = of(node.source)
        if bound is None:
            return node
        return tirx.BufferLoad(bound.buffer, bound.indices(list(node.indices)))

    def store(node: Any) -> Any:
        bound = of(node.buffer)
        if bound is None:
            return node
        return tirx.BufferStore(bound.buffer, node.value, bound.indices(list(node.indices)))

    moved = tvm_ffi.structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store)])
    values = {b.placeholder: b.buffer for b in bindings}
    for bound in bindings:
        values |= bound.values
    return substitute(moved, values)
