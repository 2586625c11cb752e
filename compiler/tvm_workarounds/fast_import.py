"""Import TVM without a failed type lookup, which costs 33 MB and 0.3 s at run time.

TVM's Python classes look up their types in its C++ library. Without the compiler most of these do
not exist, and the first failed lookup makes TVM 0.27 read the symbols of every loaded library for
an unused backtrace. During an import of `tvm` from here, types are looked up only if their names
are in the list of registered types. If TVM is already imported, there is nothing left to save.

The modules of `compiler.runtime` that need TVM import it from here. An import hook would affect
every process. A hook also holds Python's import lock while it imports, and deadlocks with another
thread that imports the same module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_LOOK_UP = "_object_type_key_to_index"


def _of_known(
    look_up: Callable[[str], int | None], registered: Callable[[], Any]
) -> Callable[[str], int | None]:
    """Call `look_up` for registered keys; None, as it would return, for others."""
    known: set[str] = set()

    def index_of(key: str) -> int | None:
        if key not in known:
            known.update(map(str, registered()))
        return look_up(key) if key in known else None

    return index_of


if "tvm" not in sys.modules:
    from tvm_ffi import core, registry

    if hasattr(core, _LOOK_UP):  # internal to tvm_ffi; other versions may lack it
        look_up = getattr(core, _LOOK_UP)
        setattr(core, _LOOK_UP, _of_known(look_up, registry.get_registered_type_keys))
        try:
            import tvm.runtime.vm
        finally:
            setattr(core, _LOOK_UP, look_up)

import tvm.runtime.vm  # noqa: E402

__all__ = ["tvm"]
