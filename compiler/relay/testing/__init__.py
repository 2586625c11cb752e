"""`relay.testing`: networks with random weights, and helpers that scripts and tests import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...lazy import lazy_attributes

_NETWORKS = (
    *("densenet", "dcgan", "dqn", "inception_v3", "lstm", "mlp", "mobilenet"),
    *("resnet", "resnet_3d", "squeezenet", "vgg"),
)

__getattr__ = lazy_attributes(
    __name__,
    {
        **{name: f".{name}" for name in _NETWORKS},
        "init": ".init",
        "layers": ".layers",
        "create_workload": ".init",
    },
)


def run_opt_pass(expr: Any, opt_pass: Any, import_prelude: bool = False) -> Any:
    """A function after a pass, or after a list of passes."""
    import tvm
    from tvm import relax

    del import_prelude
    passes = tvm.transform.Sequential(opt_pass) if isinstance(opt_pass, list) else opt_pass
    mod = expr if isinstance(expr, tvm.IRModule) else tvm.IRModule.from_expr(expr)
    entry = passes(mod)["main"]
    return entry if isinstance(expr, relax.Function) else entry.body


def run_infer_type(expr: Any, prelude: Any = None) -> Any:
    """The expression with its type, which it has had from the start."""
    from ..expr import as_expr
    from ..infer import typed

    del prelude
    return typed(as_expr(expr))


def rand(dtype: str, *shape: int) -> Any:
    """A tensor of random numbers between 0 and 1."""
    import numpy as np
    import tvm

    return tvm.runtime.tensor(np.random.rand(*shape).astype(dtype))


def count_ops(expr: Any) -> dict[str, int]:
    """How often each operator is called."""
    from ..analysis import list_op_freqs

    return list_op_freqs(expr)


def enabled_targets() -> Iterator[tuple[str, Any]]:
    """Targets that this machine can run, with their devices."""
    import tvm

    yield "llvm", tvm.cpu(0)
