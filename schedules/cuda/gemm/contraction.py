"""Fused functions around one product: C[s, i, j] = sum over k of A(s, i, k) * B(s, j, k).

i runs over what only the first operand and the result have (rows of a product; batch, height and
width of a convolution's output), j over what only the second one and the result have (columns;
output channels of a group), k over what is summed (input channels and window), s over what all
three have (batch of products; groups). Padding, reshapes and casts before the operands are
part of A and B; element-wise operators after the sum are part of the stored value.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, sym, te, tirx
from tvm.ir import TensorLoad
from tvm.tirx.analysis import undefined_vars

from ...anchor import with_narrow_indices
from ...tir_visit import nodes_of
from ..blocks import inline_producers, stages
from ..row_reductions import Rows
from ..stages import fuse_consumers
from .convolution import reductions_of_product, split_groups

Expr = Any
VECTOR_BYTES = 16
RESULT_LANES = 4
"""TVM 0.27 writes wrong code for some vectors of eight floats, which results in half come from."""
_IF_THEN_ELSE = tvm.ir.Op.get("prim.if_then_else")


@dataclass(frozen=True)
class Axis:
    """One of s, i, j, k: its iterators, outermost first, and their extents."""

    iterators: tuple[Any, ...]
    extents: tuple[int, ...]

    @property
    def extent(self) -> int:
        return prod(self.extents)

    def ending_with(self, iterator: Any) -> Axis:
        """The axis reordered so that this iterator is innermost."""
        order = sorted(range(len(self.iterators)), key=lambda at: self.iterators[at] is iterator)
        return Axis(
            tuple(self.iterators[at] for at in order), tuple(self.extents[at] for at in order)
        )

    def at(self, position: Expr, lane: Expr = 0) -> dict[Any, Expr]:
        """The iterators' values at a position; lanes count along the innermost iterator."""
        values: dict[Any, Expr] = {}
        for at in reversed(range(len(self.iterators))):
            iterator, extent = self.iterators[at], self.extents[at]
            value = position if at == 0 else position % extent
            values[iterator] = value + lane if at == len(self.iterators) - 1 else value
            position = position // extent
        return values


@dataclass(frozen=True)
class Operand:
    """A factor of the product."""

    value: Expr  # over the iterators
    dtype: str  # dtype in memory; the product may use a wider one
    axis: str  # "i" or "j", along which the factor has rows
    along: str  # the axis along which memory has neighboring elements: "k", or as `axis`
    # Elements from a multiple of `lanes` on, along `along`, that are contiguous and aligned, and
    # under one condition; 1 if unknown
    lanes: int

    def at(self, values: Mapping[Any, Expr]) -> Expr:
        """The value at these iterators."""
        return _at(self.value, values)

    @property
    def is_read(self) -> bool:
        """Whether the value is an element of memory, or 0 under some condition."""
        return isinstance(_read(self.value)[0], TensorLoad)

    def read(self, values: Mapping[Any, Expr]) -> tuple[Expr, Expr | None]:
        """Memory read at these iterators if `is_read`, and the condition without which it is 0."""
        load, condition = _read(self.value)
        return _at(load, values), None if condition is None else _at(condition, values)


@dataclass(frozen=True)
class Contraction:
    """A fused function, taken apart."""

    func: tirx.PrimFunc  # owns the parameters that the expressions read and write
    axes: Mapping[str, Axis]  # keys "s", "i", "j", "k"
    a: Operand
    b: Operand
    sum_dtype: str  # dtype of the function's sum
    output: Any
    indices: Sequence[Expr]  # output indices over the iterators
    result: Expr  # stored value; reads the sum as `sums`
    sums: Any
    sum_indices: Sequence[Expr]  # indices into `sums` over the iterators
    along: str  # the axis along which neighboring results lie, "i" or "j"
    lanes: int  # `lanes` of an operand, for results
    rows: Rows | None  # stages of `func` after those, which reduce and map rows of the results

    def extent(self, letter: str) -> int:
        return self.axes[letter].extent

    def stored(self, values: Mapping[Any, Expr], total: Expr) -> tuple[Expr, list[Expr]]:
        """What is stored, and where, at these values of the iterators, for this sum."""

        def load(node: TensorLoad) -> Expr:
            return total if node.source.same_as(self.sums) else node

        result = tvm_ffi.structural_map(_at(self.result, values), (TensorLoad, load))
        return result, [_at(index, values) for index in self.indices]

    def place_of_sum(self, values: Mapping[Any, Expr]) -> list[Expr]:
        """The indices into `sums` at these values of the iterators."""
        return [_at(index, values) for index in self.sum_indices]

    def with_added_parts(self, parts: Any) -> tirx.PrimFunc:
        """The function with its sums added up, in order, from a parameter `parts`.

        `parts`: a buffer (number of parts, *shape of `sums`).
        """
        root = self.func.body.block
        x = te.placeholder(parts.shape, parts.dtype)

        def total(*at: Any) -> Any:
            terms = (x(part, *at) for part in range(int(parts.shape[0])))
            return functools.reduce(operator.add, terms).astype(self.sum_dtype)

        adding = te.create_prim_func([x, te.compute(self.sums.shape, total, "added_parts")])
        nest = _at(adding.body.block.body, dict(zip(adding.params, (parts, self.sums))))
        body = tirx.SeqStmt([nest, *root.body.seq[1:]])
        block = s_tir.SBlock([], [], [], "root", body, None, root.alloc_buffers)
        return tirx.PrimFunc([*self.func.params, parts], s_tir.SBlockRealize([], True, block))


def multiplied(func: tirx.PrimFunc) -> set[str]:
    """Types that the function's first reduction multiplies; none if that sums no products."""
    schedule = s_tir.Schedule(func)
    found = reductions_of_product(schedule)[:1]
    return {str(x.ty.dtype) for each in found for x in _factors(schedule.get(each.block).body)}


def take_apart(func: tirx.PrimFunc) -> Contraction | None:
    """The parts of a function with one product; None where it has another form.

    After the product and its epilogue there may be stages that reduce or map rows of the result.
    """
    schedule = s_tir.Schedule(with_narrow_indices(func))
    reductions = reductions_of_product(schedule)
    if not reductions:
        return None
    product, *later = (stage.block for stage in reductions)
    # What reductions of rows read is computed once, after the product.
    read = (reader for block in later for reader in schedule.get_producers(block))
    inline_producers(schedule, {schedule.get(block).name_hint for block in read})
    split_groups(schedule, product)
    store = schedule.cache_write(product, 0, "local")
    fuse_consumers(schedule, store)
    kept = [schedule.get(block).name_hint for block in (product, store)]
    inline_producers(schedule, kept)
    names = [schedule.get(stage.block).name_hint for stage in stages(schedule)]
    if names[:2] != kept:
        return None
    rows = Rows.of(schedule.mod["main"]) if len(names) > 2 else None
    if (rows is None) != (len(names) == 2):
        return None
    anchor, storing = schedule.get(product), schedule.get(store)
    moved = _moved(anchor, storing)
    if moved is None:
        return None
    analyzer, units = sym.Analyzer(), {}
    for iterator in anchor.iter_vars:
        analyzer.bind(iterator.var, iterator.dom)
        if int(iterator.dom.extent) == 1:
            units[iterator.var] = tirx.const(0, "int32")
    # A group's channels are named by their group alone once the divisions are simplified.
    a, b = (analyzer.simplify(_at(factor, units)) for factor in _factors(anchor.body))
    moved = {iterator: _at(value, units) for iterator, value in moved.items()}
    result = _at(storing.body.value, moved)
    indices = [_at(index, moved) for index in storing.body.indices]
    axes = _axes(anchor, a, b, indices)
    if axes is None:
        return None
    operands = [_operand(a, "i", axes), _operand(b, "j", axes)]
    for operand in reversed(operands):  # the first one's wish counts more
        if operand.lanes > 1:
            axis = axes[operand.along]
            axes[operand.along] = axis.ending_with(_last_iterator(operand.value))
    first, second = (_as_ordered(operand, axes) for operand in operands)
    output = storing.body.buffer
    along, lanes = _lanes_of_results(indices, output, axes)
    return Contraction(
        schedule.mod["main"],
        axes,
        first,
        second,
        str(anchor.body.buffer.dtype),
        output,
        indices,
        result,
        anchor.body.buffer,
        [_at(index, units) for index in anchor.body.indices],
        along,
        lanes,
        rows,
    )


def _at(expression: Expr, values: Mapping[Any, Expr]) -> Expr:
    """The expression or statement with variables replaced by their values."""

    def replace(var: Any) -> Expr:
        return values.get(var, var)

    return tvm_ffi.structural_map(expression, (tirx.Var, replace)) if values else expression


def _factors(body: tirx.Stmt) -> tuple[Expr, Expr]:
    """a and b of C[...] = C[...] + a * b, without the casts around them."""
    product = body.value.b
    while isinstance(product, tirx.Cast):
        product = product.value
    factors = [product.a, product.b]
    for at, factor in enumerate(factors):
        while isinstance(factor, tirx.Cast):
            factor = factors[at] = factor.value
    return factors[0], factors[1]


def _moved(anchor: s_tir.SBlock, storing: s_tir.SBlock) -> dict[Any, Expr] | None:
    """Iterators of the block that stores, in terms of the anchor's; None if it is not so plain."""
    if not isinstance(storing.body, tirx.BufferStore):
        return None
    sums = anchor.body.buffer
    loads = [each for each in nodes_of(storing.body.value, TensorLoad) if each.source.same_as(sums)]
    moved: dict[Any, Expr] = {
        iterator.var: tirx.const(0, "int32")
        for iterator in storing.iter_vars
        if int(iterator.dom.extent) == 1
    }
    iterators = {iterator.var for iterator in storing.iter_vars}
    for load in loads:
        for index, written in zip(load.indices, anchor.body.indices, strict=True):
            if index in iterators:
                if not tvm_ffi.structural_equal(moved.setdefault(index, written), written):
                    moved[index] = written  # of extent 1
            elif not _is_zero(index):
                return None
    return moved if loads and iterators <= set(moved) else None


def _is_zero(index: Expr) -> bool:
    return isinstance(index, tirx.IntImm) and int(index) == 0


def _axes(
    anchor: s_tir.SBlock, a: Expr, b: Expr, indices: Sequence[Expr]
) -> dict[str, Axis] | None:
    """The iterators by letter; None where one fits nowhere, or i, j or k has none."""
    in_a, in_b = set(undefined_vars(a)), set(undefined_vars(b))
    in_c = {var for index in indices for var in undefined_vars(index)}
    letters = {(1, 1, 1): "s", (1, 0, 1): "i", (0, 1, 1): "j", (1, 1, 0): "k"}
    found: dict[str, list[tuple[Any, int]]] = {letter: [] for letter in "sijk"}
    for iterator in anchor.iter_vars:
        if int(iterator.dom.extent) == 1:
            continue
        places = tuple(int(iterator.var in each) for each in (in_a, in_b, in_c))
        is_reduced = iterator.iter_type == tirx.IterVar.CommReduce
        if places not in letters or is_reduced != (letters[places] == "k"):
            return None
        found[letters[places]].append((iterator.var, int(iterator.dom.extent)))
    if not (found["i"] and found["j"] and found["k"]):
        return None
    return {
        letter: Axis(tuple(var for var, _ in each), tuple(extent for _, extent in each))
        for letter, each in found.items()
    }


def _read(value: Expr) -> tuple[Expr, Expr | None]:
    """The read, and its condition, of an operand; the value itself where it is something else."""
    if isinstance(value, tvm.ir.Call) and value.op.same_as(_IF_THEN_ELSE):
        condition, inside, outside = value.args
        is_zero = isinstance(outside, tirx.IntImm | tirx.FloatImm) and float(outside.value) == 0
        if is_zero and isinstance(inside, TensorLoad):
            return inside, condition
    return value, None


def _operand(value: Expr, letter: str, axes: Mapping[str, Axis]) -> Operand:
    """An operand as memory has it, if its iterators may be put into any order."""
    plain = Operand(value, str(value.ty.dtype), letter, "k", 1)
    last = _last_iterator(value)
    for along in ("k", letter):
        if last in axes[along].iterators:
            axis = axes[along].ending_with(last)
            return replace(plain, along=along, lanes=_contiguous(plain, axis))
    return plain


def _last_iterator(value: Expr) -> Any:
    """The index of the innermost axis of memory that is longer than 1; None without a read."""
    load, _ = _read(value)
    if not isinstance(load, TensorLoad):
        return None
    pairs = zip(load.indices, load.source.shape, strict=True)
    return next((index for index, extent in reversed(list(pairs)) if int(extent) > 1), None)


def _contiguous(operand: Operand, axis: Axis) -> int:
    """Elements along the innermost axes that are contiguous, aligned, and under one condition."""
    load, condition = _read(operand.value)
    memory = [
        (index, int(extent))
        for index, extent in zip(load.indices, load.source.shape, strict=True)
        if int(extent) > 1
    ]
    run, iterators = 1, list(zip(axis.iterators, axis.extents, strict=True))
    while memory and iterators:
        (index, extent), (iterator, length) = memory[-1], iterators[-1]
        others = [each for each, _ in memory[:-1]] + ([] if condition is None else [condition])
        if not index.same_as(iterator) or any(
            iterator in set(undefined_vars(each)) for each in others
        ):
            break
        memory.pop()
        iterators.pop()
        run *= gcd(extent, length)
        if extent != length:
            break
    return gcd(VECTOR_BYTES // tvm.DataType(operand.dtype).itemsize, run) if run > 1 else 1


def _as_ordered(operand: Operand, axes: Mapping[str, Axis]) -> Operand:
    """The operand, with the lanes that the axes' order leaves it."""
    if not operand.is_read:
        return operand
    return replace(operand, lanes=_contiguous(operand, axes[operand.along]))


def _lanes_of_results(
    indices: Sequence[Expr], output: Any, axes: Mapping[str, Axis]
) -> tuple[str, int]:
    """Along which axis neighboring results lie, and how many lanes they have."""
    last = indices[-1]
    for letter in ("j", "i"):
        axis = axes[letter]
        if last.same_as(axis.iterators[-1]):
            if any(last in set(undefined_vars(each)) for each in indices[:-1]):
                return letter, 1
            return letter, gcd(RESULT_LANES, axis.extents[-1], int(output.shape[-1]))
    return "j", 1
