"""Pattern tables of external compilers, by the compiler's name: what MergeComposite takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

Table = Callable[[], Sequence[tuple[Any, ...]]]

_TABLES: dict[str, Sequence[tuple[Any, ...]]] = {}

LIBRARIES = (
    "arm_compute_lib",
    "bnns",
    "clml",
    "cublas",
    "cudnn",
    "cutlass",
    "dnnl",
    "tensorrt",
)
_RELAYS = {**{name: name for name in LIBRARIES}, "coremlcompiler": "coreml"}
"""Compiler to the module that has its table."""


def register_pattern_table(compiler: str, table: Table | None = None) -> Any:
    """Set the table of a compiler; a decorator of the function that makes it without `table`."""

    def register(make: Table) -> Table:
        _TABLES[compiler] = make()
        return make

    return register if table is None else register(table)


def get_pattern_table(compiler: str) -> Sequence[tuple[Any, ...]] | None:
    """The table of a compiler: what a script registered, or Relay's own; None without either."""
    load(compiler)
    return _TABLES.get(compiler)


def load(compiler: str) -> None:
    """Have Relay's own table of a compiler and its operators registered, where there is one."""
    if compiler in _RELAYS and compiler not in _TABLES:
        import_module(f".{_RELAYS[compiler]}", __package__)
