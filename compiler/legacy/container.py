"""`tvm.runtime.container`: what executors return for tuples, and the containers of attributes."""

from collections.abc import Mapping

from tvm_ffi import Array

ADT = list  # a tuple of results is a list of tensors
Map = Mapping  # what executors tell by name is a dict
ShapeTuple = tuple
String = str

__all__ = ["ADT", "Array", "Map", "ShapeTuple", "String"]
