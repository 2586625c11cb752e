"""`relay.qnn.transform`: convert quantized operators to integer arithmetic."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from .. import dialect
from ..relay_to_relax import Flattener
from .base import map_functions, module_pass
from .structure import Legalize as _legalize


def CanonicalizeOps() -> Any:
    """Expand every quantized operator to integer arithmetic."""

    def change(function: relax.Function, _mod: tvm.IRModule) -> relax.Function:
        return _QnnFlattener(dialect.expand).function(function)

    return module_pass("qnn.CanonicalizeOps", 1, lambda mod: map_functions(mod, change))


def Legalize() -> Any:
    """Replace quantized operators with the result of their attribute FTVMQnnLegalize."""
    return _legalize("FTVMQnnLegalize")


class _QnnFlattener(Flattener):
    """Expands only operators of the qnn dialect."""

    def _call(self, node: relax.Call) -> relax.Expr:
        if dialect.relay_name(node).startswith("qnn."):
            return super()._call(node)
        kept, self.expansion = self.expansion, None
        result = super()._call(node)
        self.expansion = kept
        return result
