"""Finds where a PyTorch program decides by the values of its inputs, which an export can't follow.

An export runs the program once. What Python code or TorchScript reads out of a tensor then becomes
a constant of the module, so it must not depend on the inputs that the module will get.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import torch

from compiler.errors import UnsupportedOperatorError
from compiler.support.depth_first import depth_first

_inputs: ContextVar[int] = ContextVar("inputs", default=0)
"""Number of the trace's inputs that are the program's; its weights come behind them."""

READ_VALUES = frozenset(
    {
        "aten::Bool", "aten::Complex", "aten::ComplexImplicit", "aten::Float",
        "aten::FloatImplicit", "aten::Int", "aten::IntImplicit", "aten::ScalarImplicit",
        "aten::_local_scalar_dense", "aten::allclose", "aten::equal", "aten::is_nonzero",
        "aten::item", "aten::tolist", "prim::tolist", "higher_order::cond",
        "higher_order::while_loop",
    }
)  # fmt: skip
"""Operators that make Python values of a tensor's, or take a way by them."""

READ_EXTENTS = frozenset({"aten::len", "aten::numel", "aten::size", "aten::sym_size"})

# What follows the first does not depend on the tensor's values; the extents of the second's results
# do.
_EXTENTS_ALONE = frozenset({"aten::numel", "aten::size", "prim::device", "prim::dtype"})
_EXTENTS_BY_VALUES = frozenset(
    {
        "aten::_unique", "aten::_unique2", "aten::argwhere", "aten::bincount",
        "aten::masked_select", "aten::nonzero", "aten::nonzero_numpy", "aten::repeat_interleave",
        "aten::unique_consecutive", "aten::unique_dim",
    }
)  # fmt: skip


def begin(leaves: Sequence[Any]) -> None:
    """Take note of the inputs of the program that is traced from now on."""
    _inputs.set(sum(isinstance(leaf, torch.Tensor) for leaf in leaves))


def require_known(kind: str, operands: Sequence[Any], where: str) -> None:
    """Reject `kind` if it reads input-dependent values or extents; the error names `where`."""
    if kind not in READ_VALUES and kind not in READ_EXTENTS:
        return
    for operand in operands:
        value = _traced(operand) if isinstance(operand, torch.Tensor) else None
        if value is None:
            continue
        history = _history(value)
        if not any(map(_is_input, history)):
            continue
        if kind in READ_VALUES or any(map(_has_extents_by_values, history)):
            raise UnsupportedOperatorError(
                f"the program decides by values of its inputs ({kind} at {where}): an import "
                "would keep the way that it takes for zeros. Use torch.where or masks instead of "
                "this branch or loop, or import the parts around it and decide between them in "
                "Python"
            )


def _traced(tensor: Any) -> Any:
    """The value of the graph that is being traced, None for a tensor that it does not know."""
    if not isinstance(tensor, torch.Tensor) or torch._C._get_tracing_state() is None:
        return None
    try:
        return torch._C._get_value_trace(tensor)
    except RuntimeError:
        return None


def _history(value: Any) -> list[Any]:
    """A value and all that its values are computed from."""

    def sources(each: Any) -> list[Any]:
        node = each.node()
        is_end = node.kind() == "prim::Param" or node.kind() in _EXTENTS_ALONE
        return [] if is_end else list(node.inputs())

    return list(depth_first([value], sources, lambda each: each.debugName()))


def _is_input(value: Any) -> bool:
    return value.node().kind() == "prim::Param" and value.offset() < _inputs.get()


def _has_extents_by_values(value: Any) -> bool:
    node = value.node()
    if node.kind() == "aten::index":
        indices = list(node.inputs())[1].node().inputs()
        return any(_is_mask(index) for index in indices)
    return node.kind() in _EXTENTS_BY_VALUES


def _is_mask(index: Any) -> bool:
    kind = index.type()
    return kind.kind() == "TensorType" and kind.scalarType() in ("Bool", "Byte")
