"""The target-independent part of a build."""

from __future__ import annotations

import tvm

from .. import ir


def simplify(mod: tvm.IRModule) -> tvm.IRModule:
    """Run the target-independent passes that the current PassContext allows."""
    return tvm.transform.Sequential(ir.simplify_passes())(mod)
