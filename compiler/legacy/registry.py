"""`tvm._ffi.registry`: global functions by their names."""

from tvm import get_global_func, register_object
from tvm import register_global_func as register_func
from tvm_ffi.registry import list_global_func_names, remove_global_func

__all__ = [
    "get_global_func",
    "list_global_func_names",
    "register_func",
    "register_object",
    "remove_global_func",
]
