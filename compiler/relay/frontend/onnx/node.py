"""Interface of converters to one ONNX node: inputs as Relax expressions, attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import tvm
from tvm import relax

from compiler.errors import UnsupportedOperatorError
from compiler.ir.constants import array_of, integers, static_shape
from compiler.ir.dynamic_shape import as_extent, simplified

from ..error_text import plain
from .node_names import describe
from .shape_expr import LARGEST, shape_of

if TYPE_CHECKING:
    from .graph import GraphImporter

CALLED_OPSET = 20
"""Version of ONNX's operators that converters of other operators are written in."""

Scope = dict[str, Any]
"""ONNX tensor name to Relax expression, within one graph or function body."""


@dataclass
class Node:
    """One ONNX node during conversion, of version `opset` of its operator set.

    An input that is left out is None. Attributes are int, float, bytes, tuple, `TensorProto` or
    `GraphProto`; the graphs among them may refer to `scope` and are converted by `importer`.
    """

    proto: onnx.NodeProto
    opset: int
    inputs: list[relax.Expr | None]
    attrs: dict[str, Any]
    importer: GraphImporter
    scope: Scope = field(repr=False)

    @property
    def builder(self) -> relax.BlockBuilder:
        """The block builder that bindings go to."""
        return self.importer.builder

    def __getitem__(self, index: int) -> relax.Expr:
        """Input `index`, which the operator requires."""
        value = self.get(index)
        if value is None:
            raise self.unsupported(f"input {index} is missing")
        return value

    def get(self, index: int) -> relax.Expr | None:
        """Input `index`, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind `expr` to a variable and return it."""
        return self.builder.emit(expr)

    def emit_sequence(self, sequence: relax.SeqExpr) -> relax.Expr:
        """Bind what a sequence of bindings binds, and return its value."""
        for block in sequence.blocks:
            for binding in block.bindings:
                self.builder.emit_normalized(binding)
        return sequence.body

    def attr(self, name: str, default: Any = None) -> Any:
        """Attribute `name`; bytes come as text."""
        value = self.attrs.get(name, default)
        return value.decode("utf-8") if isinstance(value, bytes) else value

    def required(self, name: str) -> Any:
        """Attribute `name`, which the operator requires; no checker knows those of onnxruntime."""
        value = self.attr(name)
        if value is None:
            raise self.unsupported(f"the attribute {name} is missing")
        return value

    def axis(self, default: int, rank: int) -> int:
        """Attribute `axis`, counted from the front of that many dimensions."""
        return self.axis_of(self.attr("axis", default), rank)

    def axis_of(self, axis: Any, rank: int) -> int:
        """An axis counted from the front; it must be one of `rank` dimensions."""
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise self.unsupported(f"the axis {axis} is not one of {rank} dimensions")
        return axis % rank

    def window(self, rank: int) -> tuple[list[int], list[int], list[int]]:
        """Strides, dilations and pads (before, then after each axis) of a window of `rank` axes."""
        strides, dilations = (
            list(self.attr(name, (1,) * rank)) for name in ("strides", "dilations")
        )
        return strides, dilations, list(self.attr("pads", (0,) * 2 * rank))

    def shape(self, index: int) -> tuple[int, ...]:
        """Static shape of input `index`."""
        extents = static_shape(self[index])
        if extents is None:
            raise self.unsupported(
                f"the shape of input {index} is known only at run time; give the model's inputs "
                "static extents, as from_onnx(model, shape={name: extents})"
            )
        return extents

    def extents(self, index: int) -> list[Any]:
        """Extents of input `index`: numbers, and expressions over the model's symbols."""
        extents = shape_of(self[index])
        if extents is None:
            raise self.unsupported(f"the shape of input {index} is known only at run time")
        return extents

    def expect_extents(self, index: int, wanted: Mapping[int, int]) -> relax.Expr:
        """Cast input `index` to known extents where it has symbolic ones; checked at run time.

        `wanted`: extents by axis; 1 expects nothing, because it broadcasts.
        """
        extents = self.extents(index)
        known = [
            wanted[axis] if wanted.get(axis, 1) != 1 and not isinstance(extent, int) else extent
            for axis, extent in enumerate(extents)
        ]
        if all(new is old for new, old in zip(known, extents)):
            return self[index]
        ty = relax.TensorType([as_extent(extent) for extent in known], self[index].ty.dtype)
        return self.builder.match_cast(self[index], ty)

    def extents_in(self, index: int) -> np.ndarray | None:
        """Extents (array of objects) or known value of input `index`; None if left out or other."""
        value = self.get(index)
        if value is None:
            return None
        if isinstance(value, relax.ShapeExpr):
            return np.array([simplified(each) for each in value.values], object)
        known = self.importer.symbolic.get(value) if isinstance(value, relax.Var) else None
        return constant_value(value) if known is None else known

    def elements(self, index: int) -> np.ndarray | None:
        """Elements of an integer input; None for an element that is known only at run time.

        Returns None if the input is omitted, is not of integers, or has an unknown or large shape.
        """
        known, value = self.extents_in(index), self.get(index)
        if known is not None or value is None:
            return None if known is None or known.size > LARGEST else known
        if value in self.importer.partly_known:
            return self.importer.partly_known[value]
        shape = static_shape(value) if isinstance(value.ty, relax.TensorType) else None
        if shape is None or dtype_of(value) not in ("int32", "int64") or math.prod(shape) > LARGEST:
            return None
        return np.full(shape, None, object)

    def dtype(self, index: int) -> str:
        """Dtype of input `index`, e.g. "float32"."""
        return dtype_of(self[index])

    def value(self, index: int, what: str) -> np.ndarray:
        """Value of input `index`, which must be known while importing; `what` names it."""
        array = constant_value(self[index])
        if array is None:
            raise self.unsupported(f"{what} (input {index}) must be a constant")
        return array

    def call(
        self, operator: str, *operands: relax.Expr | None, outputs: int = 1, **attributes: Any
    ) -> Any:
        """The results of an operator of ONNX's own on these operands: one, or a list of them.

        It is the operator of `CALLED_OPSET`; a None among the operands is left out, and so is an
        attribute that is None or empty.
        """
        names = [f"{self.proto.name}.{i}" for i in range(len(operands) + outputs)]
        scope: Scope = dict(zip(names, operands))
        inputs = [name if scope[name] is not None else "" for name in names[: len(operands)]]
        given = {name: value for name, value in attributes.items() if value not in (None, ())}
        proto = onnx.helper.make_node(
            operator, inputs, names[len(operands) :], self.proto.name, **given
        )
        results = self.importer.convert_node(proto, scope, CALLED_OPSET)
        return results if outputs > 1 else results[0]

    def unsupported(self, why: str) -> UnsupportedOperatorError:
        """The error that says that this form of the operator can't be converted."""
        types = ", ".join("-" if value is None else plain(str(value.ty)) for value in self.inputs)
        return UnsupportedOperatorError(f"{describe(self.proto, self.opset)}: {why} [{types}]")


def constant_value(expr: relax.Expr | None) -> np.ndarray | None:
    """The array of a constant, a static shape or an immediate; None for anything else."""
    if isinstance(expr, relax.ShapeExpr):
        extents = integers(expr.values)
        return None if extents is None else np.array(extents, "int64")
    if isinstance(expr, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return np.array(expr.value, str(expr.ty))
    return None if expr is None else array_of(expr)


def dtype_of(expr: relax.Expr) -> str:
    """The dtype of a tensor expression, e.g. "float32"."""
    return str(expr.ty.dtype) if isinstance(expr.ty, relax.TensorType) else str(expr.ty)
