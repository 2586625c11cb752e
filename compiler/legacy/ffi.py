"""`tvm._ffi`, its `base` and its `registry`: the names that scripts imported from them."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

import tvm
from tvm import get_global_func as get_global_func
from tvm import register_object as register_object
from tvm_ffi import core
from tvm_ffi import init_ffi_api as _init_api  # noqa: F401 (scripts import it from here)
from tvm_ffi.registry import list_global_func_names as list_global_func_names
from tvm_ffi.registry import remove_global_func as remove_global_func

from . import libinfo as libinfo
from .patches import Patches

TVMError = RuntimeError
_LIB = tvm.base._LOADED_LIBS.get("tvm_compiler", tvm.base._LOADED_LIBS["tvm_runtime"])
base = registry = sys.modules[__name__]


def py_str(text: bytes) -> str:
    """Bytes in UTF-8 as text."""
    return text.decode("utf-8")


logger = logging.getLogger("baton.legacy")
# What old scripts register so that TVM finds nvcc; builds find it themselves today.
_OWN = "tvm_callback_cuda_compile"


@functools.cache
def _also_tvm_error(kind: type[Exception]) -> type[Exception]:
    # It is pickled as its kind, since process pools send errors.
    members = {"__module__": "builtins", "__reduce__": lambda self: (kind, self.args)}
    made = type(kind.__name__, (kind, TVMError), members)
    core.ERROR_TYPE_TO_NAME[made] = kind.__name__
    return made


def change(patches: Patches) -> None:
    """Raise errors of TVM's C++ code as `TVMError`s too, which all of them were."""
    for kind in (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        patches.set_item(core.ERROR_NAME_TO_TYPE, kind.__name__, _also_tvm_error(kind))


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
