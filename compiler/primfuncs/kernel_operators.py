"""Operators of kernels: an attribute that a PrimFunc gets when Baton emits it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx

OPERATORS = "baton.operators"
"""Attribute of a PrimFunc: the operators that it computes, between blanks."""

_FAMILIES = ("nn.", "image.", "vision.")
_ENDING_IN_DIGITS = ("atan2", "log10", "log2")
_operators: set[str] = set()


class NamingBuilder:
    """A block builder that writes into each kernel it emits which operator the kernel computes.

    `sources`: of the variables that it emitted, `source` as it was set at that time.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self.source = ""
        self.sources: dict[relax.Var, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def emit(self, value: relax.Expr, *names: str) -> relax.Var:
        """As `BlockBuilder.emit`."""
        made = self._builder.emit(value, *names)
        if self.source:
            self.sources[made] = self.source
        return made

    def call_te(self, function: Callable[..., Any], *args: Any, **options: Any) -> relax.Call:
        """As `BlockBuilder.call_te`; `primfunc_attrs` may name other operators."""
        hint = options.pop("primfunc_name_hint", None) or function.__name__
        hint = hint.removeprefix("te_")
        attrs = {
            OPERATORS: hint.removeprefix("tir_"),
            **(options.pop("primfunc_attrs", None) or {}),
        }
        return self._builder.call_te(
            function, *args, primfunc_name_hint=hint, primfunc_attrs=attrs, **options
        )


def declare_operator(name: str) -> None:
    """Declare the full name of an operator, by which reports call its kernels."""
    _operators.add(name)
    _full_name.cache_clear()


def operators_of(kernel: str, function: tirx.PrimFunc) -> list[str]:
    """Operators of an unfused kernel, under Relay's names."""
    given = function.attrs.get(OPERATORS) if function.attrs else None
    compute = _compute_name(kernel, function) if given is None else str(given)
    buffers = (param.ty for param in function.params)
    ranks = [len(ty.shape) for ty in buffers if isinstance(ty, tirx.BufferType)]
    return [_relay_name(each, ranks) for each in compute.split()]


def _compute_name(kernel: str, function: tirx.PrimFunc) -> str:
    """The compute of a kernel that TVM's legalization emitted: conv2d12 -> conv2d.

    TVM passes its block builder on to C++, so that no other builder can write the attribute.
    """
    kernel = kernel.removeprefix("tir_").removeprefix("te_")
    for name in _ENDING_IN_DIGITS:  # log2 is a compute, or the third kernel of log
        if kernel.startswith(name) and f"{name}(" in str(function):
            return name
    return kernel.rstrip("0123456789")


def _relay_name(compute: str, ranks: Sequence[int]) -> str:
    """The Relay operator of a compute; a matmul is `nn.batch_matmul` of stacks, else `nn.dense`."""
    if compute == "matmul":
        return "nn.batch_matmul" if len(ranks) > 1 and ranks[1] > 2 else "nn.dense"
    return _full_name(compute)


@functools.lru_cache(maxsize=1024)
def _full_name(compute: str) -> str:
    """conv2d -> nn.conv2d; a compute without an operator keeps its name."""
    if compute in _operators:
        return compute
    named = (family + compute for family in _FAMILIES if family + compute in _operators)
    return next(named, compute)
