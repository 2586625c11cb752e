"""Tensors that share memory while a program is replayed for an export.

The exporter records a write in place as a new value of the tensor written to, and of the tensors
that it is a slice of. Other views of the same memory keep their old values in the export.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree

from compiler.errors import UnsupportedOperatorError

_FOLLOWED = ("aten::select", "aten::slice")
"""Views through which the exporter passes a write on to what they are views of."""


class Aliases:
    """Refuses to read a tensor after a write to its memory that the export does not show."""

    def __init__(self) -> None:
        self._versions: dict[int, tuple[torch.Tensor, int]] = {}  # keeps tensors, and so ids
        self._sources: dict[int, torch.Tensor] = {}

    def require_current(self, reader: str, operands: Any) -> None:
        """Raise UnsupportedOperatorError if `reader` would see an old value of an operand."""
        for tensor in _tensors(operands):
            _, version = self._versions.setdefault(id(tensor), (tensor, _version(tensor)))
            if version != _version(tensor):
                shape = tuple(map(int, tensor.shape))
                raise UnsupportedOperatorError(
                    f"{reader} reads a tensor of shape {shape} after an operator that works in "
                    "place wrote to another view of its memory; use the operator that returns a "
                    "new tensor instead"
                )

    def record(self, op: torch._ops.OpOverload, args: Any, results: Any) -> None:
        """Note what a call wrote to, and what its results are views of."""
        for argument, value in zip(op._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in _tensors(value):
                    self._written(tensor)
        for tensor in _tensors(results):
            self._versions.setdefault(id(tensor), (tensor, _version(tensor)))
            if op._schema.name in _FOLLOWED and tensor is not args[0]:
                self._sources[id(tensor)] = args[0]

    def _written(self, tensor: torch.Tensor | None) -> None:
        while tensor is not None:
            self._versions[id(tensor)] = tensor, _version(tensor)
            tensor = self._sources.pop(id(tensor), None)  # a second write is not passed on


def _version(tensor: torch.Tensor) -> int:
    """How often the tensor was written; those of inference mode can't be, outside of it."""
    return 0 if tensor.is_inference() else int(tensor._version)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
