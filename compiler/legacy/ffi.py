"""`tvm._ffi` and `tvm._ffi.base`: the names that scripts imported from them."""

from __future__ import annotations

import sys

from tvm import get_global_func, register_object
from tvm import register_global_func as register_func

TVMError = RuntimeError
base = sys.modules[__name__]

__all__ = ["TVMError", "base", "get_global_func", "register_func", "register_object"]
