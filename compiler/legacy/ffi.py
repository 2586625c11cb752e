"""`tvm._ffi`: the names that scripts imported from it."""

from __future__ import annotations

from tvm import get_global_func, register_object
from tvm import register_global_func as register_func

TVMError = RuntimeError

__all__ = ["TVMError", "get_global_func", "register_func", "register_object"]
