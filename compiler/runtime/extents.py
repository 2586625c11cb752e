"""Whether the shapes of values are those of the inputs, with symbols and their bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compiler.errors import InputError


def require_shape(
    what: str, shape: Sequence[int], declared: Sequence[int | str], bounds: Mapping[str, int]
) -> None:
    """Compare one value with its input.

    `what`: the input in a message: "input 'x'". `shape`: of the value. `declared`: of the input; a
    string is a symbol. `bounds`: largest extents of symbols.
    Raises InputError: they differ in rank or extent, or the extent of a symbol is beyond its bound.
    """
    known = f"{what} has the shape ({', '.join(map(str, declared))})"
    if len(shape) != len(declared):
        raise InputError(
            f"{known}, but the value has {tuple(shape)}: the rank {len(shape)}, expected "
            f"{len(declared)}"
        )
    for axis, (extent, own) in enumerate(zip(shape, declared)):
        if not isinstance(own, str) and extent != own:
            raise InputError(
                f"{known}, but the value has {tuple(shape)}: the extent {extent} along axis "
                f"{axis}, expected {own}"
            )
        bound = bounds.get(own) if isinstance(own, str) else None
        if bound is not None and extent > bound:
            raise InputError(
                f"{what} has the extent {extent} along axis {axis}, but {own!r} is at most {bound} "
                "in this library"
            )


def require_equal_symbols(extents: Iterable[tuple[str, int, str, int]]) -> None:
    """Compare the extents that inputs have for one symbol.

    `extents`: the input in a message, axis, symbol and extent.
    Raises InputError: two of one symbol differ.
    """
    first: dict[str, tuple[str, int, int]] = {}
    for what, axis, symbol, extent in extents:
        other, place, expected = first.setdefault(symbol, (what, axis, extent))
        if extent != expected:
            raise InputError(
                f"{what} has the extent {extent} along axis {axis}, expected {expected}: it is "
                f"{symbol!r}, as axis {place} of {other} is"
            )
