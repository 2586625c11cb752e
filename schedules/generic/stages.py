"""The blocks of a function as a read-only chain of stages: iterations, memory accesses, work."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Call, Op, Range, TensorLoad

from ..tir_visit import nodes_of

Expr = Any
Var = Any

IF_THEN_ELSE = "prim.if_then_else"

# Calls that take several instructions per element; an approximate count of each.
CALL_COST = {
    "tirx.exp": 12,
    "tirx.exp2": 12,
    "tirx.exp10": 12,
    "tirx.log": 18,
    "tirx.log2": 18,
    "tirx.log10": 18,
    "tirx.log1p": 18,
    "tirx.tanh": 16,
    "tirx.erf": 16,
    "tirx.sigmoid": 16,
    "tirx.pow": 40,
    "tirx.sqrt": 8,
    "tirx.rsqrt": 8,
    "tirx.sin": 20,
    "tirx.cos": 20,
    "tirx.tan": 30,
    "tirx.asin": 30,
    "tirx.acos": 30,
    "tirx.atan": 30,
    "tirx.sinh": 30,
    "tirx.cosh": 30,
    "tirx.asinh": 30,
    "tirx.acosh": 30,
    "tirx.atanh": 30,
    "tirx.call_pure_extern": 30,
    "tirx.call_extern": 30,
}


@dataclass(frozen=True)
class Iter:
    """One block iterator: "S" spatial, "R" reduction, with its constant extent."""

    kind: str
    extent: int
    var: Var


@dataclass(frozen=True)
class Access:
    """One load or store: the buffer, its indices, and the element offset."""

    buffer: Any
    indices: tuple[Expr, ...]
    offset: Expr
    is_store: bool


@dataclass(frozen=True)
class Stage:
    """One block below the root."""

    name: str
    rv: Any
    block: Any
    # Ordered by the loops that drive them, outermost first; empty if opaque
    iters: tuple[Iter, ...]
    # Not a perfect nest with one constant loop per iterator, or does more than store values: no
    # rule may look inside
    opaque: bool

    @property
    def is_reduction(self) -> bool:
        return any(it.kind == "R" for it in self.iters)

    @property
    def volume(self) -> int:
        """Number of executions of the block."""
        total = 1
        for it in self.iters:
            total *= it.extent
        return total

    @property
    def outputs(self) -> list[Any]:
        """The buffers that the block writes."""
        return [region.source for region in self.block.writes]


def stages(sch: s_tir.Schedule) -> list[Stage]:
    """Every block below the root, in program order; none where the function has no root block."""
    if not _has_root(sch):
        return []
    root = sch.get_sblock("root")
    return [stage_of(sch, rv) for rv in sch.get_child_blocks(root)]


def _has_root(sch: s_tir.Schedule) -> bool:
    body = sch.mod["main"].body
    return isinstance(body, s_tir.SBlockRealize) and str(body.block.name_hint) == "root"


_sblock_realize = tvm_ffi.get_global_func("s_tir.schedule.GetSBlockRealize")


def stage_of(sch: s_tir.Schedule, rv: Any) -> Stage:
    """One block, by its handle."""
    block = sch.get(rv)
    kinds = {tirx.IterVar.DataPar: "S", tirx.IterVar.CommReduce: "R"}
    values = list(_sblock_realize(sch, rv).iter_values)
    iters = []
    loops = sch.get_loops(rv)
    for loop in map(sch.get, loops):
        driven = [iv for iv, value in zip(block.iter_vars, values) if value.same_as(loop.loop_var)]
        if len(driven) == 1 and driven[0].iter_type in kinds and _is_constant(driven[0].dom):
            iters.append(Iter(kinds[driven[0].iter_type], int(driven[0].dom.extent), driven[0].var))
    plain = (
        len(iters) == len(values) == len(loops) > 0
        and len(block.writes) >= 1
        and _is_stores(block.body)
    )
    return Stage(str(block.name_hint), rv, block, tuple(iters) if plain else (), not plain)


def _is_constant(dom: Range) -> bool:
    return isinstance(dom.extent, tirx.IntImm) and isinstance(dom.min, tirx.IntImm)


def _is_stores(body: Any) -> bool:
    """Whether the body is stores, and bindings for them: nothing opaque, no loops."""
    if isinstance(body, tirx.SeqStmt):
        return all(_is_stores(stmt) for stmt in body.seq)
    return isinstance(body, (tirx.BufferStore, tirx.stmt.Bind))


def accesses(stage: Stage) -> list[Access]:
    """Distinct loads and stores of the block's body, without its init; unit iterators are 0."""
    analyzer = sym.Analyzer()
    unit = [(it.var, tirx.const(0, it.var.ty)) for it in stage.iters if it.extent == 1]
    for it in stage.iters:
        if it.extent > 1:
            analyzer.bind(it.var, range_of(it.var, it.extent))
    found: list[Access] = []
    known: set[Any] = set()

    def record(buffer: Any, indices: Sequence[Expr], is_store: bool) -> None:
        key = (buffer, is_store, *map(tvm_ffi.StructuralKey, indices))
        if key in known:
            return
        known.add(key)
        at = tuple(analyzer.simplify(substitute(index, unit)) for index in indices)
        found.append(Access(buffer, at, analyzer.simplify(element_offset(buffer, at)), is_store))

    def load(node: Any, visitor: Any) -> None:
        record(node.source, node.indices, False)
        visitor.default_visit(node)

    def store(node: Any, visitor: Any) -> None:
        record(node.buffer, node.indices, True)
        visitor.default_visit(node)

    tvm_ffi.structural_visit(stage.block.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return found


def range_of(var: Any, extent: int) -> Range:
    """From 0, in the variable's own type: TVM replaces a variable of one value by that."""
    return Range(tirx.const(0, var.ty), tirx.const(extent, var.ty))


def element_offset(buffer: Any, indices: Sequence[Expr]) -> Expr:
    """Offset, in elements of the compact row-major buffer, at `indices`."""
    if not indices:
        return tirx.const(0, "int64")
    index_type = indices[0].ty
    offset: Expr = tirx.const(0, index_type)
    for index, extent in zip(indices, buffer.shape):  # extents may be known at run time only
        offset = offset * extent.astype(index_type.dtype) + index.astype(index_type.dtype)
    return offset


def substitute(node: Any, pairs: Sequence[tuple[Var, Expr]]) -> Any:
    """`node` with each variable replaced by its expression."""
    if not pairs:
        return node

    def replace(var: Var) -> Expr:
        for old, new in pairs:
            if var.same_as(old):
                return new
        return var

    return tvm_ffi.structural_map(node, (tirx.Var, replace))


def uses(node: Any, var: Var) -> bool:
    """Whether `var` occurs in `node`."""
    return any(other.same_as(var) for other in nodes_of(node, tirx.Var))


def stride(access: Access, var: Var) -> int | None:
    """Elements by which the access moves when `var` grows by one; None if that varies."""
    if not uses(access.offset, var):
        return 0
    linear = sym.detect_linear_equation(access.offset, [var])
    if len(linear) != 2 or not isinstance(linear[0], tirx.IntImm):
        return None
    return int(linear[0])


def condition_iters(stage: Stage) -> list[Iter]:
    """Iterators whose values, not only the elements at them, matter: in conditions, casts."""
    free: list[Var] = []

    def skip_indices(node: Any, visitor: Any) -> None:
        del node, visitor

    def store(node: Any, visitor: Any) -> None:
        visitor.visit(node.value)

    def variable(node: Any, visitor: Any) -> None:
        del visitor
        free.append(node)

    tvm_ffi.structural_visit(
        stage.block.body,
        [(TensorLoad, skip_indices), (tirx.BufferStore, store), (tirx.Var, variable)],
    )
    return [it for it in stage.iters if any(var.same_as(it.var) for var in free)]


def contiguous_group(stage: Stage, among: Sequence[Iter]) -> list[Iter]:
    """The longest run of trailing iterators that every access walks as one flat axis.

    `among`: candidates, outermost first; unit iterators are skipped. Returns outermost first; at
    least the last candidate with more than one element, if there is one.
    """
    moving = [it for it in among if it.extent > 1]
    if not moving:
        return []
    every = accesses(stage)
    conditions = condition_iters(stage)
    group = [moving[-1]]
    if group[0] in conditions:
        return group
    for outer in reversed(moving[:-1]):
        inner = group[0]
        if outer in conditions or not all(_joins(a, outer, inner) for a in every):
            break
        group.insert(0, outer)
    return group


def _joins(access: Access, outer: Iter, inner: Iter) -> bool:
    inner_stride = stride(access, inner.var)
    return inner_stride is not None and stride(access, outer.var) == inner_stride * inner.extent


def body_cost(block: Any) -> int:
    """Approximate number of instructions per execution of the block's body."""
    operators = (call.op for call in nodes_of(block.body, Call) if isinstance(call.op, Op))
    cost = sum(CALL_COST.get(op.name, 1) for op in operators)
    return max(cost + len(nodes_of(block.body, TensorLoad)), 1)


def expensive_calls(block: Any) -> bool:
    """Whether the body calls a function of CALL_COST."""
    return _calls(block, CALL_COST)


def nested_extremes(block: Any) -> int:
    """The depth to which the body nests maxima and minima of two non-constant operands."""
    depth = deepest = 0

    def extreme(node: Any, visitor: Any) -> None:
        nonlocal depth, deepest
        constants = (tirx.FloatImm, tirx.IntImm)
        is_one = not isinstance(node.a, constants) and not isinstance(node.b, constants)
        depth += is_one
        deepest = max(deepest, depth)
        visitor.default_visit(node)
        depth -= is_one

    tvm_ffi.structural_visit(block.body, ((tirx.Max, tirx.Min), extreme))
    return deepest


def has_branches(stage: Stage) -> bool:
    """Whether the body computes one of two expressions, as padding does by the position."""
    return _calls(stage.block, (IF_THEN_ELSE,))


def _calls(block: Any, names: Collection[str]) -> bool:
    return any(
        isinstance(node.op, Op) and node.op.name in names for node in nodes_of(block.body, Call)
    )


def work(every: Sequence[Stage]) -> int:
    """Approximate number of element operations of all stages."""
    return sum(stage.volume * body_cost(stage.block) for stage in every if not stage.opaque)


def lane_strides(stage: Stage, it: Iter, lanes: int) -> list[int | None]:
    """Stride of each access in vectors of `it`, seeing through reshapes to multiples of `lanes`."""
    analyzer = sym.Analyzer()
    for other in stage.iters:
        if other.extent > 1 and other is not it:
            analyzer.bind(other.var, range_of(other.var, other.extent))
    outer, lane = _split_vars(it, lanes, analyzer)
    pairs = [(it.var, outer * lanes + lane)]
    found: list[int | None] = []
    for access in accesses(stage):
        offset = analyzer.simplify(substitute(access.offset, pairs))
        found.append(stride(Access(access.buffer, (), offset, access.is_store), lane))
    return found


def branches_per_lane(stage: Stage, it: Iter, lanes: int) -> bool:
    """Whether an if_then_else would still differ between the lanes of `it` split by `lanes`."""
    analyzer = sym.Analyzer()
    for other in stage.iters:
        if other is not it:
            analyzer.bind(other.var, range_of(other.var, other.extent))
    outer, lane = _split_vars(it, lanes, analyzer)
    differs = False
    for node in nodes_of(stage.block.body, Call):
        if isinstance(node.op, Op) and node.op.name == IF_THEN_ELSE:
            # The analyzer sees more in x < c than in c <= x.
            condition = tvm_ffi.structural_map(
                substitute(node.args[0], [(it.var, outer * lanes + lane)]),
                (tirx.LE, lambda le: tirx.Not(tirx.LT(le.b, le.a))),
            )
            differs = differs or uses(analyzer.simplify(condition), lane)
    return differs


def _split_vars(it: Iter, lanes: int, analyzer: Any) -> tuple[Var, Var]:
    outer, lane = tirx.Var("outer", it.var.ty), tirx.Var("lane", it.var.ty)
    analyzer.bind(outer, range_of(outer, max(it.extent // lanes, 1)))
    analyzer.bind(lane, range_of(lane, lanes))
    return outer, lane
