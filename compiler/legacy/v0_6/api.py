"""`tvm.api`: what of TVM 0.6's top level made expressions."""

from . import find as __getattr__

__all__ = ["__getattr__"]
