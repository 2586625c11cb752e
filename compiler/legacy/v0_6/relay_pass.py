"""`tvm.relay.ir_pass`: passes over one expression, before Relay had passes over modules."""

from __future__ import annotations

from typing import Any

import tvm

from ...relay import analysis, transform


def infer_type(expr: Any, mod: Any = None) -> Any:
    """An expression or function with its types known."""
    return _after(transform.InferType(), expr, mod)


def simplify_inference(expr: Any) -> Any:
    """A function without operators that matter in training alone."""
    return _after(transform.SimplifyInference(), expr, None)


def _after(run: Any, expr: Any, mod: Any) -> Any:
    """What a pass makes of a function; an expression becomes the body of one."""
    module = tvm.IRModule.from_expr(expr) if mod is None else mod
    if mod is not None:
        module = tvm.IRModule({**dict(mod.functions_items()), "main": expr})
    main = run(module)["main"]
    return main if isinstance(expr, tvm.ir.BaseFunc) else main.body


def __getattr__(name: str) -> Any:
    return getattr(analysis, name)
