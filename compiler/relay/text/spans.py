"""`relay.SpanCheck`: check that expressions have source positions."""

from __future__ import annotations

from typing import Any

import tvm

from ...errors import RelayError
from ...ir.rewrite import expressions_in, relax_functions


def SpanCheck() -> Any:
    """Pass that rejects calls without spans; RelayError lists the first ones and their number."""

    def check(mod: tvm.IRModule, _context: Any) -> tvm.IRModule:
        without = [
            str(getattr(expr.op, "name", expr.op))
            for _, function in relax_functions(mod)
            for expr in expressions_in(function, tvm.ir.Call)
            if expr.span is None
        ]
        if without:
            raise RelayError(
                f"{len(without)} calls have no source position, among them "
                f"{', '.join(without[:3])}; give the frontends' and builders' span="
            )
        return mod

    return tvm.transform.module_pass(check, opt_level=0, name="SpanCheck")
