"""Rewrites of one stage's iterators that no schedule primitive offers.

`merge_axes` makes one axis of several that are contiguous in memory. Fusing their loops is not
enough: TVM indexes the buffer with quotients and remainders of the fused loop, and where the
inner extent is not a multiple of the vector width, these don't simplify to a flat index again.

`peel_reduction` splits a reduction into a part that vectors divide and the elements left over.

`separate_reductions` makes one stage for each result of a stage that computes several sums.

`multiply_by_reciprocals` divides a row by its sum with one division.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad

from ..tir_visit import nodes_of
from .stages import Iter, Stage, accesses, element_offset, range_of, stride, substitute

Block = Any
Expr = Any

_COMBINERS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)


def merge_axes(func: tirx.PrimFunc, stage: Stage, group: Sequence[Iter]) -> tirx.PrimFunc:
    """Replace the iterators of `group`, all spatial or all reduction, by one.

        for i, j: B[i, j] = f(A[i, j])   ->   for ij: B.flat[ij] = f(A.flat[ij])

    Every access of the stage must walk the group as one flat axis
    (`stages.contiguous_group`). The function is returned unchanged where that would take a
    flat view of a buffer that is not a parameter, or that another stage reads too.
    """
    moved = [
        access for access in accesses(stage) if any(stride(access, it.var) != 0 for it in group)
    ]
    if len(group) < 2 or not all(_may_view(func, stage, access) for access in moved):
        return func
    extent = 1
    for it in group:
        extent *= it.extent
    var = tirx.Var("flat", group[-1].var.ty)
    views = _FlatViews(
        stage,
        [access.buffer for access in moved],
        [*((it.var, tirx.const(0, it.var.ty)) for it in group[:-1]), (group[-1].var, var)],
        (var, extent),
    )
    block = stage.block
    members = [any(iv.var.same_as(it.var) for it in group) for iv in block.iter_vars]
    kind = block.iter_vars[members.index(True)].iter_type
    iter_vars = [iv for iv, member in zip(block.iter_vars, members) if not member]
    iter_vars.insert(members.index(True), _iter_var(var, extent, kind))
    init = None if block.init is None else views.rewrite(block.init)
    merged = _block(func, block, iter_vars, views.rewrite(block.body), init, views.buffers)
    return _replace(func, block, [merged], declarations=views.declarations())


def peel_reduction(func: tirx.PrimFunc, stage: Stage, reduced: Iter, main: int) -> tirx.PrimFunc:
    """Reduce the first `main` elements in a separate stage, named with the suffix "_head".

        for k in K:  S = S + f(k)

        for k in main:          H = H + f(k)
        for k in 1 + K - main:  S = S + (H if k == 0 else f(main + k - 1))

    `reduced` is the stage's only reduction iterator and `is_simple_reduction` holds.
    """
    block, store = stage.block, stage.block.body
    head_buffer = tirx.decl_buffer(
        store.buffer.shape, store.buffer.dtype, f"{store.buffer.name}_head"
    )

    def into_head(statement: Any) -> Any:
        value = statement.value
        if isinstance(value, _COMBINERS) and _loads(value.a, store.buffer):
            value = type(value)(tirx.BufferLoad(head_buffer, list(store.indices)), value.b)
        return tirx.BufferStore(head_buffer, value, list(statement.indices))

    fresh = [(iv.var, tirx.Var(f"{iv.var.name}_head", iv.var.ty)) for iv in block.iter_vars]
    head = _block(
        func,
        block,
        [
            _iter_var(var, main if old.same_as(reduced.var) else int(iv.dom.extent), iv.iter_type)
            for iv, (old, var) in zip(block.iter_vars, fresh)
        ],
        substitute(into_head(store), fresh),
        substitute(into_head(block.init), fresh),
        [head_buffer],
        f"{block.name_hint}_head",
    )
    var = tirx.Var("tail", reduced.var.ty)
    behind_main = substitute(store.value.b, [(reduced.var, var + (main - 1))])
    from_head = tirx.BufferLoad(head_buffer, list(store.indices))
    operand = tirx.if_then_else(var < 1, from_head, behind_main)
    tail = _block(
        func,
        block,
        [
            _iter_var(var, reduced.extent - main + 1, iv.iter_type)
            if iv.var.same_as(reduced.var)
            else iv
            for iv in block.iter_vars
        ],
        tirx.BufferStore(
            store.buffer, type(store.value)(store.value.a, operand), list(store.indices)
        ),
        block.init,
        [head_buffer],
    )
    return _replace(func, block, [head, tail], allocations=[head_buffer])


def separate_reductions(func: tirx.PrimFunc, stage: Stage) -> tirx.PrimFunc:
    """Compute each of several independent sums (or maxima, ...) in a separate stage.

    A group norm sums x and x^2 in one stage; single sums are what vectors and `rfactor` take.
    The function is returned unchanged where the results depend on each other (argmax).
    """
    block = stage.block
    if not isinstance(block.body, tirx.SeqStmt) or not isinstance(block.init, tirx.SeqStmt):
        return func
    bound = [(stmt.var, stmt.value) for stmt in block.body.seq if isinstance(stmt, tirx.stmt.Bind)]
    stores = [stmt for stmt in block.body.seq if isinstance(stmt, tirx.BufferStore)]
    parts = []
    for store in stores:
        value = substitute(store.value, bound)
        init = [first for first in block.init.seq if first.buffer.same_as(store.buffer)]
        others = [other.buffer for other in stores if other is not store]
        if (
            len(init) != 1
            or not isinstance(value, _COMBINERS)
            or not _loads(value.a, store.buffer)
            or _reads_any(value.b, [*others, store.buffer])
        ):
            return func
        fresh = [(iv.var, tirx.Var(str(iv.var.name), iv.var.ty)) for iv in block.iter_vars]
        parts.append(
            _block(
                func,
                block,
                [
                    _iter_var(var, int(iv.dom.extent), iv.iter_type)
                    for iv, (_, var) in zip(block.iter_vars, fresh)
                ],
                substitute(tirx.BufferStore(store.buffer, value, list(store.indices)), fresh),
                substitute(init[0], fresh),
                [],
                f"{block.name_hint}_{store.buffer.name}",
            )
        )
    return _replace(func, block, parts)


def multiply_by_reciprocals(func: tirx.PrimFunc, every: Sequence[Stage]) -> tirx.PrimFunc:
    """Turn x / sum(x), the last step of a softmax, into x * (1 / sum(x)).

    LLVM computes the reciprocal once per row. Only where the divisor is the sum of the very
    buffer that is divided: then the quotient can't overflow, and differs by at most one unit in
    the last place.
    """
    sums = [
        (stage.block.body.buffer, stage.block.body.value.b.source)
        for stage in every
        if stage.is_reduction
        and is_simple_reduction(stage)
        and isinstance(stage.block.body.value, tirx.Add)
        and isinstance(stage.block.body.value.b, TensorLoad)
    ]

    def replace(division: Any) -> Expr:
        dividend, divisor = division.a, division.b
        if not (isinstance(dividend, TensorLoad) and isinstance(divisor, TensorLoad)):
            return division
        if not any(
            divisor.source.same_as(total) and dividend.source.same_as(part) for total, part in sums
        ):
            return division
        return dividend * (tirx.const(1.0, division.ty) / divisor)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.Div, replace)))


def _reads_any(value: Expr, buffers: Sequence[Any]) -> bool:
    return any(
        any(node.source.same_as(buffer) for buffer in buffers)
        for node in nodes_of(value, TensorLoad)
    )


def is_simple_reduction(stage: Stage) -> bool:
    """Whether the stage is one sum, product, maximum or minimum: not an argmax, for one."""
    body = stage.block.body
    return (
        isinstance(body, tirx.BufferStore)
        and isinstance(body.value, _COMBINERS)
        and _loads(body.value.a, body.buffer)
        and isinstance(stage.block.init, tirx.BufferStore)
    )


def _loads(value: Expr, buffer: Any) -> bool:
    return isinstance(value, TensorLoad) and bool(value.source.same_as(buffer))


def _may_view(func: tirx.PrimFunc, stage: Stage, access: Any) -> bool:
    """A second buffer for the same memory hides a dependence, so only where there is none."""
    if not any(access.buffer.same_as(param) for param in func.params):
        return False
    if not access.is_store:
        return True
    return not _reads_any(func.body, [access.buffer])


class _FlatViews:
    """One-dimensional views of buffers, and the rewriting of a stage's accesses to them."""

    def __init__(
        self,
        stage: Stage,
        buffers: Sequence[Any],
        pairs: Sequence[tuple[Any, Expr]],
        flat: tuple[Any, int],
    ) -> None:
        self._views: list[tuple[Any, Any]] = []
        self._pairs = list(pairs)
        self._analyzer = sym.Analyzer()
        self._analyzer.bind(flat[0], range_of(*flat))
        replaced = [old for old, _ in pairs]
        kept = [it for it in stage.iters if not any(it.var.same_as(old) for old in replaced)]
        for it in kept:
            self._analyzer.bind(it.var, range_of(it.var, it.extent))
        # The offset is linear in the group only within its bounds: simplify it before the
        # group's variables are replaced.
        self._bounded = sym.Analyzer()
        for it in stage.iters:
            self._bounded.bind(it.var, range_of(it.var, it.extent))
        self._kept = [it.var for it in kept]
        for buffer in buffers:
            if self._view_of(buffer) is None:
                size: Any = 1
                for extent in buffer.shape:
                    size = size * (int(extent) if isinstance(extent, tirx.IntImm) else extent)
                name = f"{buffer.name}_flat"
                view = tirx.decl_buffer((size,), buffer.dtype, name, data=buffer.data)
                self._views.append((buffer, view))

    @property
    def buffers(self) -> list[Any]:
        return [view for _, view in self._views]

    def declarations(self) -> list[Any]:
        return [tirx.stmt.DeclBuffer(view, data=buffer.data) for buffer, view in self._views]

    def rewrite(self, node: Any) -> Any:
        def load(old: TensorLoad) -> Expr:
            view = self._view_of(old.source)
            if view is not None:
                return tirx.BufferLoad(view, [self._flat(old.source, old)])
            # What stands still while the group moves may name its variables all the same.
            return tirx.BufferLoad(old.source, [self._still(index) for index in old.indices])

        def store(old: Any) -> Any:
            view = self._view_of(old.buffer)
            if view is None:
                return old
            return tirx.BufferStore(view, old.value, [self._flat(old.buffer, old)])

        flattened = tvm_ffi.structural_map(node, [(TensorLoad, load), (tirx.BufferStore, store)])
        return substitute(flattened, self._pairs)

    def _still(self, index: Expr) -> Expr:
        # A lone variable stays, of one element too: `rfactor` compares the load of a sum with its
        # store, which is not simplified.
        is_kept = any(index.same_as(var) for var in self._kept)
        return index if is_kept else self._bounded.simplify(index)

    def _flat(self, buffer: Any, access: Any) -> Expr:
        offset = self._bounded.simplify(element_offset(buffer, list(access.indices)))
        return self._analyzer.simplify(substitute(offset, self._pairs))

    def _view_of(self, buffer: Any) -> Any | None:
        return next((view for old, view in self._views if old.same_as(buffer)), None)


def _iter_var(var: Any, extent: int, kind: int) -> Any:
    return tirx.IterVar(range_of(var, extent), var, kind)


def _block(
    func: tirx.PrimFunc,
    old: Block,
    iter_vars: Sequence[Any],
    body: Any,
    init: Any | None,
    new_buffers: Sequence[Any],
    name: str | None = None,
) -> Any:
    """A loop nest over a block with the regions that its body really reads and writes."""
    name = str(old.name_hint) if name is None else name
    bare = s_tir.SBlock(list(iter_vars), [], [], name, body, init, annotations=old.annotations)
    known = {buffer: buffer for buffer in [*_buffers(func), *new_buffers]}
    reads, writes = s_tir.analysis.get_sblock_read_write_region(bare, known)
    block = s_tir.SBlock(
        list(iter_vars), reads, writes, name, body, init, annotations=old.annotations
    )
    loops = [tirx.Var(f"{iv.var.name}_loop", iv.var.ty) for iv in iter_vars]
    nest: Any = s_tir.SBlockRealize(loops, True, block)
    for loop, iv in reversed(list(zip(loops, iter_vars))):
        zero = tirx.const(0, iv.var.ty)
        nest = tirx.For(loop, zero, iv.dom.extent, tirx.ForKind.SERIAL, nest)
    return nest


def _buffers(func: tirx.PrimFunc) -> list[Any]:
    tensors = [param for param in func.params if isinstance(param.ty, tirx.BufferType)]
    return [*tensors, *func.body.block.alloc_buffers]


def _replace(
    func: tirx.PrimFunc,
    block: Block,
    nests: Sequence[Any],
    declarations: Sequence[Any] = (),
    allocations: Sequence[Any] = (),
) -> tirx.PrimFunc:
    """`func` with the nest of `block` replaced, and buffers declared or allocated in the root."""
    root = func.body.block
    statements = list(declarations)
    for statement in tirx.stmt_list(root.body):
        if any(other.same_as(block) for other in nodes_of(statement, s_tir.SBlock)):
            statements.extend(nests)
        else:
            statements.append(statement)
    new_root = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        tirx.stmt_seq(*statements),
        root.init,
        [*root.alloc_buffers, *allocations],
        root.match_buffers,
        root.annotations,
    )
    return func.with_body(s_tir.SBlockRealize([], True, new_root))
