"""Recognize SiLU that an exporter decomposed."""

from __future__ import annotations

from tvm import relax

from .rewrite import CallRule, call_pass


class _Recognize(CallRule):
    """Replace x * sigmoid(x) by `nn.silu`."""

    def rewrite(self, call: relax.Call, name: str) -> relax.Expr | None:
        if name != "multiply":
            return None
        left, right = call.args
        for data, gate in ((left, right), (right, left)):
            sigmoid = self.scope.match_call(gate, "sigmoid")
            if sigmoid is not None and sigmoid.args[0].same_as(data) and self.scope.used_once(gate):
                return relax.op.nn.silu(data)
        return None


RecognizeSilu = call_pass("RecognizeSilu", 1, _Recognize)
