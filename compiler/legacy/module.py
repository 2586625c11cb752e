"""`tvm.module`: TVM 0.6's name of what `tvm.runtime` has."""

from __future__ import annotations

from tvm.runtime import Module, system_lib

from .switch import load_module as load

__all__ = ["Module", "load", "system_lib"]
