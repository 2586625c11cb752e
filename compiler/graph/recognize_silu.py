"""Recognition of SiLU where an exporter spelled it out."""

from __future__ import annotations

import tvm
from tvm import relax

from .rewrite import CallRule, rewrite_calls


@tvm.transform.module_pass(opt_level=1, name="RecognizeSilu")
class RecognizeSilu:
    """Replace x * sigmoid(x) by `nn.silu`.

    Before::

        a = sigmoid(x)
        y = multiply(x, a)

    After::

        y = nn.silu(x)
    """

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function."""
        return rewrite_calls(mod, _Recognize)


class _Recognize(CallRule):
    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name != "multiply":
            return None
        left, right = call.args
        for data, gate in ((left, right), (right, left)):
            sigmoid = self.scope.call_of(gate, "sigmoid")
            if sigmoid is not None and sigmoid.args[0].same_as(data) and self.scope.used_once(gate):
                return relax.op.nn.silu(data)
        return None
