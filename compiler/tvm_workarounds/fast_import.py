"""Import TVM without PyTorch, and without a failed type lookup, which costs 33 MB and 0.3 s.

tvm_ffi and `tvm.relax` import PyTorch if it is installed, which costs 3 s and 850 MB. They need it
for a symbol conflict on Windows, and for a faster DLPack exchange with PyTorch before 2.10. Here it
is hidden from them, unless the program has imported `torch` before.

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
import threading
from collections.abc import Callable
from types import SimpleNamespace
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


def _hiding_torch() -> SimpleNamespace:
    """A finder of modules that finds no PyTorch in this thread."""
    thread = threading.get_ident()

    def find_spec(name: str, *_: Any) -> None:
        if name == "torch" and threading.get_ident() == thread:
            raise ModuleNotFoundError(f"{name} is hidden from tvm_ffi", name=name)

    return SimpleNamespace(find_spec=find_spec)


_finder: Any = _hiding_torch()
sys.meta_path.insert(0, _finder)
try:
    import tvm_ffi

    if "tvm" not in sys.modules:
        from tvm_ffi import core, registry

        if hasattr(core, _LOOK_UP):  # internal to tvm_ffi; other versions may lack it
            look_up = getattr(core, _LOOK_UP)
            setattr(core, _LOOK_UP, _of_known(look_up, registry.get_registered_type_keys))
            try:
                import tvm.runtime.vm
            finally:
                setattr(core, _LOOK_UP, look_up)

    import tvm.runtime.vm
finally:
    sys.meta_path.remove(_finder)

__all__ = ["tvm", "tvm_ffi"]
