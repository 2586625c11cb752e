"""`tvm.tir`: what `tvm.tirx`, `tvm.s_tir` and `tvm.sym` hold together today."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, sym, tirx

from .patches import Patches

# Submodules are found below tvm.tirx, as `tvm.tir.expr`.
__path__ = tirx.__path__

_RENAMED = {"Block": "SBlock", "BlockRealize": "SBlockRealize", "BlockScope": "SBlockScope"}


def __getattr__(name: str) -> Any:
    for module in (tirx, s_tir, sym):
        found = getattr(module, _RENAMED.get(name, name), None)
        if found is not None:
            return found
    raise AttributeError(
        f"tvm.tir.{name} is neither in tvm.tirx nor in tvm.s_tir, which took tvm.tir's place"
    )


def patch(patches: Patches) -> None:
    """Names of expressions' arithmetic that moved to the top level."""
    patches.add(tvm.te, "size_var", lambda name, dtype="int32": tirx.Var(name, dtype))
