"""`relay.annotation`: annotations for passes; the operators are identities."""

from __future__ import annotations

from typing import Any

from tvm import relax

from . import layout_rules
from .registry import builder, operator


def _mark(name: str, what: str, **options: Any) -> Any:
    def make(data: relax.Expr) -> relax.Expr:
        return data

    return operator(name, layout=layout_rules.elementwise, doc=what, **options)(make)


checkpoint = _mark("annotation.checkpoint", "What a gradient would compute again: identity.")
stop_fusion = _mark("annotation.stop_fusion", "A border for fusion in Relay: identity.")
bitpack_start = _mark("annotation.bitpack_start", "A mark of bit packing: identity.")
bitpack_end = _mark("annotation.bitpack_end", "A mark of bit packing: identity.")
cast_hint = _mark("annotation.cast_hint", "A hint for quantization: identity.", ignored=("dtype",))


@operator(
    "on_device",
    ignored=("virtual_device",),
    aliases=("annotation.on_device",),
    layout=layout_rules.elementwise,
)
def on_device(
    body: relax.Expr,
    device: Any = None,
    constrain_result: bool = False,
    constrain_body: bool = True,
) -> relax.Expr:
    """Identity: the build places tensors on the devices of the functions that use them."""
    return body


@operator("annotation.compiler_begin", layout=layout_rules.elementwise)
def compiler_begin(data: relax.Expr, compiler: str) -> relax.Expr:
    """Begin of a region for an external compiler: identity."""
    return data


@operator("annotation.compiler_end", layout=layout_rules.elementwise)
def compiler_end(data: relax.Expr, compiler: str) -> relax.Expr:
    """End of a region for an external compiler: identity."""
    return data


@operator("annotation.with_funcid")
def with_funcid(data: relax.Expr, funcid: int = 0) -> relax.Expr:
    """Annotate a value with a function ID: identity."""
    return data


@builder("annotation.function_on_device")
def function_on_device(function: Any, param_devices: Any, result_device: Any) -> Any:
    """Return the function: the build places tensors on the devices of their consumers."""
    return function
