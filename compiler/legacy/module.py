"""`tvm.module` and `tvm.codegen`: TVM 0.6's names of what `tvm.runtime` and `tvm.target` have."""

from tvm.runtime import Module, enabled, system_lib
from tvm.target.codegen import build_module

from .installation import load_module as load

__all__ = ["Module", "build_module", "enabled", "load", "system_lib"]
