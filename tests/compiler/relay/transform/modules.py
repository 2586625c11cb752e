"""Modules that the tests of passes make, and what is in them."""

from __future__ import annotations

from typing import Any

import tvm

from compiler import relay


def module_of(body: Any) -> tvm.IRModule:
    """A module whose main takes the free variables of an expression."""
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def operators_of(mod: tvm.IRModule) -> dict[str, int]:
    """How often each Relay operator is called."""
    return {str(name): int(count) for name, count in relay.analysis.list_op_freqs(mod).items()}
