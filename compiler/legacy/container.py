"""`tvm.runtime.container`: what executors return for tuples, and the containers of attributes."""

from __future__ import annotations

from tvm_ffi import Array, Map

ADT = list  # a tuple of results is a list of tensors
String = str

__all__ = ["ADT", "Array", "Map", "String"]
