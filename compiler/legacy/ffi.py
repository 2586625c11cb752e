"""`tvm._ffi` and `tvm._ffi.base`: the names that scripts imported from them."""

from __future__ import annotations

import sys

from tvm import get_global_func, register_object
from tvm_ffi import init_ffi_api as _init_api

from . import libinfo, registry
from .registry import register_func

TVMError = RuntimeError
base = sys.modules[__name__]

__all__ = [
    "TVMError",
    "_init_api",
    "base",
    "get_global_func",
    "libinfo",
    "py_str",
    "register_func",
    "register_object",
    "registry",
]


def py_str(text: bytes) -> str:
    """Bytes in UTF-8 as text."""
    return text.decode("utf-8")
