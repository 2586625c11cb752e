"""TVM, imported without a failed look-up of a type, which costs 33 MB and 0.3 s in its runtime.

TVM's Python classes look up their types in its C++ library. Without the compiler
most of these do not exist, and the first look-up that fails makes TVM 0.27 read the symbols of
every loaded library for an unused backtrace. While `tvm` is imported from here, types are
looked up only after their names were found in the list of those that exist. Where TVM is imported
already, there is nothing left to save.

The modules of `compiler.runtime` that need TVM take it from here. An import hook would reach every
process, but what a hook imports is imported under Python's import lock, and waits for ever for
another thread that imports the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_LOOK_UP = "_object_type_key_to_index"


def _of_known(
    look_up: Callable[[str], int | None], registered: Callable[[], Any]
) -> Callable[[str], int | None]:
    """`look_up` for keys that are registered; None, as it would return, for others."""
    known: set[str] = set()

    def index_of(key: str) -> int | None:
        if key not in known:
            known.update(map(str, registered()))
        return look_up(key) if key in known else None

    return index_of


if "tvm" not in sys.modules:
    from tvm_ffi import core, registry

    if hasattr(core, _LOOK_UP):  # a name of tvm_ffi's own, which other versions may not have
        look_up = getattr(core, _LOOK_UP)
        setattr(core, _LOOK_UP, _of_known(look_up, registry.get_registered_type_keys))
        try:
            import tvm.runtime.vm
        finally:
            setattr(core, _LOOK_UP, look_up)

import tvm.runtime.vm  # noqa: E402

__all__ = ["tvm"]
