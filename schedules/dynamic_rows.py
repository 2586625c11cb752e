"""Kernels over a dynamic number of rows: static kernels of a few rows, in loops.

A function whose results are computed row by row, its extents known but for the number of rows, is
scheduled for a few numbers of rows as every static function is. At run time the tiles of one of
these kernels cover all rows; the last tile overlaps the one before it, so that no tile has guards:

    for start in 0, T, 2 T, ..., rows - T
      the kernel for T rows, on rows start to start + T of each tensor

Where the kernel is a product on panels of weights, the loop over its tiles is inside of the one
over the panels, and a panel stays in the cache while rows pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import TensorLoad

from .generic.stages import range_of, uses
from .named_extents import with_named_extents
from .tir_visit import nodes_of, serial

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)
_FOLDED: dict[Any, Callable[[Any, Any], Any]] = {
    tirx.Add: lambda a, b: a + b,
    tirx.Sub: lambda a, b: a - b,
    tirx.Mul: lambda a, b: a * b,
    tirx.FloorDiv: tirx.floordiv,
    tirx.FloorMod: tirx.floormod,
    tirx.Min: tirx.min,
    tirx.Max: tirx.max,
}


@dataclass(frozen=True)
class Rows:
    """A function that computes rows independently of each other."""

    func: tirx.PrimFunc
    # Factors of the number of rows; the last one counts the rows of a static function
    symbols: list[Any]
    # Elements of a row of each parameter; None for one that all rows read as a whole
    tensors: list[int | None]

    @property
    def count(self) -> Any:
        """The number of rows, an expression."""
        total: Any = self.symbols[0]
        for symbol in self.symbols[1:]:
            total = total * symbol
        return total

    @property
    def widest(self) -> int:
        """Elements of the longest row."""
        return max(width for width in self.tensors if width is not None)

    def static(self, rows: int) -> tirx.PrimFunc:
        """The function for this number of rows."""
        return _bound(self.func, self.symbols, _rows_alone(self.symbols, rows))


def is_symbolic(func: tirx.PrimFunc) -> bool:
    """Whether a parameter has a dynamic extent."""
    return any(
        isinstance(param.ty, tirx.BufferType) and _symbols_of(param.shape) for param in func.params
    )


def symbols_of(func: tirx.PrimFunc) -> list[Any]:
    """The symbols in the shapes of a function's parameters, in their order."""
    symbols: list[Any] = []
    for param in _buffers(func):
        for symbol in _symbols_of(param.shape):
            if not any(symbol.same_as(known) for known in symbols):
                symbols.append(symbol)
    return symbols


def rows_of(func: tirx.PrimFunc) -> Rows | None:
    """The rows of a function; None where it has other unknown extents, or rows meet each other."""
    named = with_named_extents(func)
    func = func if named is None else named
    parameters, symbols = _buffers(func), symbols_of(func)
    if not symbols or not _has_root(func):
        return None
    leads = [_lead(param.shape) for param in parameters]
    if not all(
        _is_product(param.shape[:lead], symbols) for param, lead in zip(parameters, leads) if lead
    ):
        return None
    try:
        small = _bound(func, symbols, _rows_alone(symbols, 2))
        several = _bound(func, symbols, range(2, 2 + len(symbols)))
    except ZeroDivisionError:
        return None
    tensors: list[int | None] = []
    for lead, static in zip(leads, small.params, strict=True):
        if lead == 0:
            tensors.append(None)
            continue
        if not all(isinstance(extent, (int, tirx.IntImm)) for extent in static.shape):
            return None
        extents = [int(extent) for extent in static.shape]
        if extents[:lead] != [1] * (lead - 1) + [2]:
            return None
        width = 1
        for extent in extents[lead:]:
            width *= extent
        tensors.append(width)
    if not any(tensors) or not _is_row_by_row(func, small, several, symbols):
        return None
    return Rows(func, symbols, tensors)


def _buffers(func: tirx.PrimFunc) -> list[Any]:
    """The parameters that are tensors; others are symbols that no tensor's shape says alone."""
    return [param for param in func.params if isinstance(param.ty, tirx.BufferType)]


def _symbols_of(shape: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for extent in shape:
        if not isinstance(extent, (int, tirx.IntImm)):
            found.extend(tirx.analysis.undefined_vars(extent))
    return found


def _has_root(func: tirx.PrimFunc) -> bool:
    body = func.body
    return isinstance(body, s_tir.SBlockRealize) and str(body.block.name_hint) == "root"


def _lead(shape: Sequence[Any]) -> int:
    """How many axes there are up to the last one of an unknown extent."""
    return max((i + 1 for i, extent in enumerate(shape) if _symbols_of([extent])), default=0)


def _is_product(lead: Sequence[Any], symbols: Sequence[Any]) -> bool:
    """Whether extents multiply to the product of all symbols, in their order."""
    left: Any = tirx.const(1, "int64")
    right: Any = tirx.const(1, "int64")
    for extent in lead:
        left = left * extent
    for symbol in symbols:
        right = right * symbol
    return bool(sym.Analyzer().can_prove_equal(left, right))


def _bound(func: tirx.PrimFunc, symbols: Sequence[Any], extents: Iterable[int]) -> tirx.PrimFunc:
    """The function with numbers for all symbols."""
    tensors = tirx.PrimFunc(_buffers(func), func.body, func.ret_type).with_attrs(func.attrs)
    return with_extents(tensors, list(zip(symbols, extents)))


def _rows_alone(symbols: Sequence[Any], rows: int) -> list[int]:
    """1 for all symbols but the last, which is the number of rows."""
    return [1] * (len(symbols) - 1) + [rows]


def with_extents(node: Any, extents: Sequence[tuple[Any, int]]) -> Any:
    """Replace symbols by numbers, in types too; ZeroDivisionError for division by extent 0."""
    divides_by_zero = False

    def value(var: Any) -> Any:
        for symbol, number in extents:
            if var.same_as(symbol):
                return tirx.const(number, symbol.ty)
        return var

    def folded(part: Any) -> Any:
        nonlocal divides_by_zero
        if isinstance(part, _DIVISIONS) and isinstance(part.b, tirx.IntImm) and int(part.b) == 0:
            divides_by_zero = True  # an exception in here would damage memory
            return part
        return _FOLDED[type(part)](part.a, part.b)

    bound = tvm_ffi.structural_map(node, (tirx.Var, value))
    result = tvm_ffi.structural_map(bound, [(kind, folded) for kind in _FOLDED])
    if divides_by_zero:
        raise ZeroDivisionError("an extent that is divided by is 0")
    return result


def _is_row_by_row(
    func: tirx.PrimFunc, small: tirx.PrimFunc, several: tirx.PrimFunc, symbols: Sequence[Any]
) -> bool:
    """Whether each block computes a row of its result from the same row of what it reads.

    `small` is the function for two rows, `several` that where every symbol is another number; their
    blocks are in the order of those of `func`.
    """
    leaves = zip(*(_leaves(each) for each in (func, small, several)), strict=True)
    return all(
        _keeps_rows(block, static, symbols) and _reads_its_place(block, example)
        for block, static, example in leaves
    )


def _reads_its_place(block: Any, example: Any) -> bool:
    """Whether the rows that are read have the number of the row that is computed.

    `example` is the block where every symbol is another number larger than 1: a reshape of rows
    is the row itself there, and rows in another order are not.
    """
    bounded = sym.Analyzer()
    for iv in example.iter_vars:
        bounded.bind(iv.var, range_of(iv.var, int(iv.dom.extent)))
    places = [
        _place(original, access)
        for original, access in zip(_accesses(block), _accesses(example), strict=True)
        if _symbols_of(original[0].shape)
    ]
    return all(bounded.can_prove_equal(place, places[0]) for place in places[1:])


def _leaves(func: tirx.PrimFunc) -> list[Any]:
    """The blocks below the root."""
    return [
        block
        for block in nodes_of(func.body, s_tir.SBlock)
        if not isinstance(block.body, s_tir.SBlockRealize) and str(block.name_hint) != "root"
    ]


def _keeps_rows(block: Any, static: Any, symbols: Sequence[Any]) -> bool:
    if any(
        iv.iter_type == tirx.IterVar.CommReduce and _symbols_of([iv.dom.extent])
        for iv in block.iter_vars
    ):
        return False
    if not isinstance(static.body, tirx.BufferStore):
        return False
    if not all(isinstance(iv.dom.extent, (int, tirx.IntImm)) for iv in static.iter_vars):
        return False
    bounded, symbolic = sym.Analyzer(), sym.Analyzer()
    for iv, original in zip(static.iter_vars, block.iter_vars, strict=True):
        bounded.bind(iv.var, range_of(iv.var, int(iv.dom.extent)))
        symbolic.bind(original.var, original.dom)
    accesses, originals = _accesses(static), _accesses(block)
    row = _row_index(originals[0], accesses[0], bounded)
    if row is None or not isinstance(row, tirx.Var):
        return False
    counters = [iv.var for iv in block.iter_vars if _symbols_of([iv.dom.extent])]
    for original, access in zip(originals, accesses, strict=True):
        for extent, index, own in zip(original[0].shape, original[1], access[1], strict=True):
            if _symbols_of([extent]):
                continue
            general = symbolic.simplify(index)
            if uses(bounded.simplify(own), row):
                return False
            if any(uses(general, each) for each in (*symbols, *counters)):
                return False
        if not _symbols_of(original[0].shape):
            continue
        index = _row_index(original, access, bounded)
        if index is None or not index.same_as(row):
            return False
    return not _names(block.body, symbols) and not _names(static.body, [row])


Access = tuple[Any, list[Any]]


def _accesses(block: Any) -> list[Access]:
    """Buffers and indices of a block: its store first, then its loads."""
    store = block.body
    loads = [(load.source, list(load.indices)) for load in nodes_of(store, TensorLoad)]
    return [(store.buffer, list(store.indices)), *loads]


def _place(original: Access, access: Access) -> Any:
    """The number of the row that is accessed, of all that the unknown extents count."""
    total: Any = tirx.const(0, "int64")
    for extent, number, index in zip(original[0].shape, access[0].shape, access[1], strict=True):
        if _symbols_of([extent]):
            total = total * number + index
    return total


def _row_index(original: Access, access: Access, bounded: sym.Analyzer) -> Any | None:
    """The index along the one axis of a buffer that has two rows; None if there is none."""
    places = [i for i, extent in enumerate(original[0].shape) if _symbols_of([extent])]
    rows = [i for i in places if int(access[0].shape[i]) == 2]
    if len(rows) != 1 or any(int(access[0].shape[i]) not in (1, 2) for i in places):
        return None
    return bounded.simplify(access[1][rows[0]])


def _names(store: Any, variables: Sequence[Any]) -> bool:
    """Whether a value depends on a variable in another way than through the places it reads."""

    def without_places(load: Any) -> Any:
        return tirx.const(0, load.ty.dtype if hasattr(load.ty, "dtype") else str(load.ty))

    value = tvm_ffi.structural_map(store.value, (TensorLoad, without_places))
    return any(uses(value, var) for var in variables)


# --- putting kernels together ------------------------------------------------------------


@dataclass(frozen=True)
class Tiling:
    """How the kernels of a few rows cover all of them."""

    # The loop over tiles is inside of the kernel's outermost loop, which runs over panels
    inside: bool = False
    resident: int = 1  # how many tiles pass a panel before the next one comes
    # Threads share the work from this many tiles on; 0: as the kernel's own loops have it
    parallel_from: int = 0
    # Annotations of the loop over the tiles that pass a panel
    marks: tuple[tuple[str, int], ...] = ()


def assemble(
    rows: Rows, kernels: dict[int, tirx.PrimFunc], tilings: dict[int, Tiling]
) -> tirx.PrimFunc:
    """Combine scheduled kernels by row count, one row among them, into one function.

    It uses the kernel that covers all rows by the fewest tiles of nearly equal numbers of rows.
    """
    count = tirx.Var("rows", "int64")
    sizes = sorted(kernels, reverse=True)
    needed = tirx.floordiv(count + (sizes[0] - 1), sizes[0])  # tiles of the largest kernel
    each = tirx.floordiv(count + (needed - 1), tirx.max(needed, tirx.const(1, "int64")))
    body: Any = None
    for size, smaller in reversed(list(zip(sizes, [*sizes[1:], 0]))):
        tiles = _tiles(rows, kernels[size], size, count, tilings[size])
        if body is None:
            body = tiles
        else:
            fits = tirx.And(count >= size, each > smaller)
            body = tirx.IfThenElse(fits, tiles, body)
    whole = tirx.SeqStmt([tirx.stmt.Bind(count, rows.count), body])
    root = s_tir.SBlock([], [], [], "root", whole)
    made = rows.func.with_body(s_tir.SBlockRealize([], True, root))
    return made.with_attr("tirx.is_scheduled", True)


def _tiles(
    rows: Rows,
    kernel: tirx.PrimFunc,
    size: int,
    count: Any,
    tiling: Tiling,
    in_parallel: bool = False,
) -> Any:
    """The loop over tiles of one kernel."""
    tiles = tirx.floordiv(count + (size - 1), size)
    kernel = _with_own_variables(kernel)
    body, declared = _own_body(rows, kernel)
    panels = _outermost_loop(body) if tiling.inside else None
    if panels is None:
        tile = tirx.Var("tile", "int64")
        inner = _on_rows(rows, kernel, tile, size, count, body)
        loop: Any = tirx.For(tile, tirx.const(0, "int64"), tiles, tirx.ForKind.SERIAL, inner)
        if tiling.parallel_from == 0:
            return tirx.stmt_seq(*declared, loop)
        if not in_parallel:
            shared = _tiles(rows, kernel, size, count, tiling, in_parallel=True)
            alone = tirx.stmt_seq(*declared, serial(loop))
            return tirx.IfThenElse(tiles >= tiling.parallel_from, shared, alone)
        shared = tirx.For(tile, loop.min, tiles, tirx.ForKind.PARALLEL, serial(inner))
        return tirx.stmt_seq(*declared, shared)

    def with_tiles(loop: Any) -> Any:
        if not loop.same_as(panels):
            return loop
        return _panels_and_tiles(rows, kernel, loop, size, count, tiles, tiling)

    return tirx.stmt_seq(*declared, tvm_ffi.structural_map(body, (tirx.For, with_tiles)))


def _own_body(rows: Rows, kernel: tirx.PrimFunc) -> tuple[Any, list[Any]]:
    """The body of a kernel, and the declarations of the parameters that all rows share."""
    shared = [
        tirx.stmt.DeclBuffer(own, data=param.data)
        for own, param, width in zip(kernel.params, _buffers(rows.func), rows.tensors, strict=True)
        if width is None
    ]
    return kernel.body, shared


def _on_rows(rows: Rows, kernel: tirx.PrimFunc, tile: Any, size: int, count: Any, body: Any) -> Any:
    """The body of a kernel on the rows of a tile; the last tile ends with the last row."""
    start = tirx.Var("start", "int64")
    first = tile * size if size == 1 else tirx.min(tile * size, count - size)
    statements: list[Any] = [tirx.stmt.Bind(start, first)]
    for own, param, width in zip(kernel.params, _buffers(rows.func), rows.tensors, strict=True):
        if width is None:
            continue
        whole = tirx.decl_buffer((count * width,), own.dtype, f"{own.name}_rows", data=param.data)
        place = tirx.BufferLoad(whole, [start * width])
        pointer = tirx.call_intrin("handle", "tirx.address_of", place)
        statements += [
            tirx.stmt.DeclBuffer(whole, data=param.data),
            tirx.stmt.DeclBuffer(own, data=pointer),
        ]
    return tirx.stmt_seq(*statements, body)


def _outermost_loop(body: Any) -> Any | None:
    """The loop that all work of a scheduled function is in; None where there are several."""
    statement = body.block.body if isinstance(body, s_tir.SBlockRealize) else body
    return statement if isinstance(statement, tirx.For) else None


def _panels_and_tiles(
    rows: Rows, kernel: tirx.PrimFunc, loop: Any, size: int, count: Any, tiles: Any, tiling: Tiling
) -> Any:
    """Groups of tiles > panels, in one loop > tiles."""
    wide = "int64"
    zero = tirx.const(0, wide)
    tile, group = tirx.Var("tile", wide), tirx.Var("group", wide)
    inner = tirx.Var("tile_of_group", wide)
    panels = tirx.const(int(loop.extent), wide)
    resident = tiling.resident
    work = tirx.Var("task", wide)
    panel = tirx.stmt.Bind(
        loop.loop_var, tirx.Cast(loop.loop_var.ty.dtype, tirx.floormod(work, panels))
    )
    in_group = (
        tiles if not resident else tirx.min(tirx.const(resident, wide), tiles - group * resident)
    )
    first = tirx.stmt.Bind(tile, inner if not resident else group * resident + inner)
    rest = tirx.For(
        inner,
        zero,
        in_group,
        tirx.ForKind.SERIAL,
        tirx.stmt_seq(first, _on_rows(rows, kernel, tile, size, count, loop.body)),
        annotations=dict(tiling.marks),
    )
    groups = (
        tirx.const(1, wide) if not resident else tirx.floordiv(tiles + (resident - 1), resident)
    )
    body = tirx.stmt_seq(tirx.stmt.Bind(group, tirx.floordiv(work, panels)), panel, rest)
    kind = tirx.ForKind.PARALLEL if tiling.parallel_from else loop.kind
    return tirx.For(work, zero, groups * panels, kind, body)


def _with_own_variables(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A copy of a function: kernels share the variables that schedules left as they were."""
    copies: list[tuple[Any, Any]] = []

    def copy(var: Any) -> Any:
        for old, new in copies:
            if var.same_as(old):
                return new
        copies.append((var, tirx.Var(var.name, var.ty)))
        return copies[-1][1]

    return tvm_ffi.structural_map(func, (tirx.Var, copy))
