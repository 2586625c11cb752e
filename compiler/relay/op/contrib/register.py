"""Registry of pattern tables for MergeComposite, by compiler name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

Table = Callable[[], Sequence[tuple[Any, ...]]]

_TABLES: dict[str, Sequence[tuple[Any, ...]]] = {}

LIBRARIES = ("arm_compute_lib", "bnns", "clml", "cublas", "cudnn", "cutlass", "dnnl", "tensorrt")
_RELAYS = {**{name: name for name in LIBRARIES}, "coremlcompiler": "coreml"}
"""Maps a compiler to the module with its table."""


def register_pattern_table(compiler: str, table: Table | None = None) -> Any:
    """Register the table of a compiler; without `table`, a decorator of the table's factory."""

    def register(make: Table) -> Table:
        _TABLES[compiler] = make()
        return make

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Sequence[tuple[Any, ...]] | None:
    """Table of a compiler: user-defined, else Relay's; None if there is neither."""
    load(compiler)
    return _TABLES.get(compiler)


def load(compiler: str) -> None:
    """Register Relay's table and operators for a compiler, if they exist."""
    if compiler in _RELAYS and compiler not in _TABLES:
        import_module(f".{_RELAYS[compiler]}", __package__)
