"""`tvm._ffi`, its `base` and its `registry`: the names that scripts imported from them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import tvm
from tvm import get_global_func as get_global_func
from tvm import register_object as register_object
from tvm_ffi import init_ffi_api as _init_api  # noqa: F401 (scripts import it from here)
from tvm_ffi.registry import list_global_func_names as list_global_func_names
from tvm_ffi.registry import remove_global_func as remove_global_func

from . import libinfo as libinfo

TVMError = RuntimeError
_LIB = tvm.base._LOADED_LIBS.get("tvm_compiler", tvm.base._LOADED_LIBS["tvm_runtime"])
base = registry = sys.modules[__name__]


def py_str(text: bytes) -> str:
    """Bytes in UTF-8 as text."""
    return text.decode("utf-8")


logger = logging.getLogger("baton.legacy")
# What old scripts register so that TVM finds nvcc; builds find it themselves today.
_OWN = "tvm_callback_cuda_compile"


def register_func(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False
) -> Any:
    """Register a global function; a decorator, with a name or without."""
    if callable(func_name):
        return register_func(func_name.__name__, func_name)
    if func_name != _OWN:
        return tvm.register_global_func(func_name, f, override)
    logger.info("%s is ignored: builds compile CUDA sources themselves", _OWN)
    return (lambda function: function) if f is None else f
