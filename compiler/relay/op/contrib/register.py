"""Pattern tables of external compilers, by the compiler's name: what MergeComposite takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Table = Callable[[], Sequence[tuple[Any, ...]]]

_TABLES: dict[str, Sequence[tuple[Any, ...]]] = {}


def register_pattern_table(compiler: str, table: Table | None = None) -> Any:
    """Set the table of a compiler; a decorator of the function that makes it without `table`."""

    def register(make: Table) -> Table:
        _TABLES[compiler] = make()
        return make

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Sequence[tuple[Any, ...]] | None:
    """The table of a compiler; None if it has registered none."""
    return _TABLES.get(compiler)
