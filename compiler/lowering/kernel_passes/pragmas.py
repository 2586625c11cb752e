"""Drop pragmas that TVM's CPU code generator does not know and would log a warning for.

These are marks for passes of other targets, and TVM's own `pragma_scope`.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

_KNOWN = ("pragma_import_", "pragma_parallel_")


@tvm.tirx.transform.prim_func_pass(opt_level=0, name="DropUnknownPragmas")
def drop_unknown_pragmas(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
    """The pass, on host functions, after all passes that read marks."""
    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.AttrStmt, _body)))


def _body(attr: tirx.AttrStmt) -> Any:
    is_unknown = attr.attr_key.startswith("pragma_") and not attr.attr_key.startswith(_KNOWN)
    return attr.body if is_unknown else attr
