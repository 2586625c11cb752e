"""Importing TVM's runtime alone without a failed look-up of a type, which costs 33 MB and 0.3 s.

TVM's Python classes look up the types of its C++ library that they stand for. Without the compiler
most of these do not exist, and the first look-up that fails makes TVM read the symbols of every
loaded library, for a backtrace that nobody sees. `before_tvm` has types looked up only after their
names were found in the list of those that exist.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_LOOK_UP = "_object_type_key_to_index"


def before_tvm() -> None:
    """Change the look-up of types as soon as TVM is imported; nothing if it is already.

    Nothing is imported here: the change is made when `import tvm` begins.
    """
    if "tvm" not in sys.modules and not any(isinstance(f, _Change) for f in sys.meta_path):
        sys.meta_path.insert(0, _Change())


class _Change:
    """A finder of modules that finds none; what it is asked for tells that TVM is wanted.

    It stays where it is: the list of finders is being gone through when it is asked.
    """

    def __init__(self) -> None:
        self._done = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name != "tvm" or self._done:
            return
        self._done = True
        from tvm_ffi import core, registry

        if hasattr(core, _LOOK_UP):  # a name of tvm_ffi's own, which other versions may not have
            look_up = _of_known(getattr(core, _LOOK_UP), registry.get_registered_type_keys)
            setattr(core, _LOOK_UP, look_up)


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
