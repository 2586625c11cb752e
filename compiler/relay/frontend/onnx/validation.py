"""Validation of ONNX nodes before conversion: schemas, shapes and attribute values."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import tvm
from onnx import AttributeProto, defs, helper
from tvm import relax

from compiler.errors import FrontendError
from compiler.ir.constants import numpy_type

from .attribute_rules import check_attributes
from .node import Node, constant_value, dtype_of
from .node_names import describe
from .shape_expr import shape_of

logger = logging.getLogger("baton.relay")

LARGEST_DATA = 1024
"""Largest number of elements of a constant that ONNX's shape inference receives by value."""

LARGEST_KEY = 1024
"""Bytes of the largest node and constant whose validation is cached."""

_NOT_INFERRED = frozenset(["Range"])
"""Operators that ONNX's function bodies call with shapes that ONNX's inference rejects."""

_PREFIX = re.compile(r"\[(Shape|Type)InferenceError\]\s*|\(op_type:[^)]*\):?\s*")


_HARMLESS = frozenset(["consumed_inputs", "is_test", "output_sequence"])
"""Attributes of old operator sets that change no result of inference."""

_KINDS = {number: name.lower() for name, number in onnx.AttributeProto.AttributeType.items()}


def validate(
    node: Node, domain: str, opsets: Mapping[str, int], from_model: bool, has_schema: bool
) -> None:
    """Check a node, of the model or created by a converter, before its conversion.

    `has_schema` is whether ONNX's schema describes the operator. The UnsupportedOperatorError names
    the attribute and the allowed values.
    """
    schema = None
    if from_model and has_schema:
        schema = _schema(node.proto.op_type, node.opset, domain)
    if schema is not None:
        _check_schema(node, schema)
    if domain == "" and has_schema:
        check_attributes(node, from_model)
    if schema is not None:
        _infer_shapes(node, schema, opsets)


@dataclass(frozen=True)
class _Schema:
    """A schema of ONNX, whose properties are copies that cost time, with those that are read."""

    schema: defs.OpSchema
    domain: str
    name: str
    since_version: int
    types: dict[str, int]
    required: tuple[str, ...]
    inputs: tuple[int, int]
    outputs: tuple[int, int]


@functools.lru_cache(maxsize=1024)
def _schema(name: str, opset: int, domain: str) -> _Schema | None:
    """The schema of an operator; None without one and for a deprecated operator."""
    if not defs.has(name, opset, domain):
        return None
    schema = defs.get_schema(name, opset, domain)
    if schema.deprecated:
        return None
    attributes = schema.attributes
    return _Schema(
        schema,
        schema.domain,
        schema.name,
        schema.since_version,
        {name: int(each.type) for name, each in attributes.items()},
        tuple(name for name, each in attributes.items() if each.required),
        (schema.min_input, schema.max_input),
        (1, schema.max_output),
    )


def check_names(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Raise FrontendError if a graph, or a graph inside of it, defines a value twice."""
    if isinstance(graph, onnx.GraphProto):
        defined = {value.name: "an input" for value in graph.input}
        defined.update({tensor.name: "an initializer" for tensor in graph.initializer})
    else:
        defined = {name: "an input" for name in graph.input}
    for node in graph.node:
        for name in filter(None, node.output):
            if name in defined:
                raise FrontendError(
                    f"{describe(node)} defines {name!r}, which is already {defined[name]}; "
                    "every value must have one definition"
                )
            defined[name] = f"an output of node {node.name!r}"
        for entry in node.attribute:
            for inner in [entry.g] if entry.type == AttributeProto.GRAPH else entry.graphs:
                check_names(inner)


def _check_schema(node: Node, schema: _Schema) -> None:
    """Check the names and types of the attributes and the number of operands."""
    seen: set[str] = set()
    for entry in node.proto.attribute:
        if entry.name in seen:
            raise node.unsupported(f"the attribute {entry.name} is given twice")
        seen.add(entry.name)
        if entry.name not in schema.types:
            _check_other_versions(node, schema, entry)
            continue
        expected = schema.types[entry.name]
        if entry.type != expected:
            given, wanted = _KINDS[entry.type], _KINDS[expected]
            raise node.unsupported(
                f"the attribute {entry.name} has the type {given}; expected {wanted}"
            )
    for name in schema.required:
        if name not in seen:
            raise node.unsupported(f"the attribute {name} is missing")
    for count, (least, most), what in (
        (len(node.proto.input), schema.inputs, "inputs"),
        (len(node.proto.output), schema.outputs, "outputs"),
    ):
        if not least <= count <= most:
            bound = f"at least {least}" if count < least else f"at most {most}"
            raise node.unsupported(f"the node has {count} {what}; expected {bound}")


def _check_other_versions(node: Node, schema: _Schema, entry: AttributeProto) -> None:
    """Raise for an attribute of another version of the operator, unless it has the default value.

    An attribute of no version is ignored; ONNX's checker warns about it.
    """
    default = _attributes_of_versions().get((schema.domain, schema.name), {}).get(entry.name)
    if default is None or entry.name in _HARMLESS:
        return
    if default.type and helper.get_attribute_value(default) == helper.get_attribute_value(entry):
        return
    raise node.unsupported(
        f"the attribute {entry.name} is not in opset {node.opset}, but in another one"
    )


@functools.cache
def _attributes_of_versions() -> dict[tuple[str, str], dict[str, AttributeProto]]:
    """Attributes of all versions of the operators, with their default values."""
    found: dict[tuple[str, str], dict[str, AttributeProto]] = {}
    for schema in defs.get_all_schemas_with_history():
        attributes = found.setdefault((schema.domain, schema.name), {})
        attributes.update({key: each.default_value for key, each in schema.attributes.items()})
    return found


def _infer_shapes(node: Node, schema: _Schema, opsets: Mapping[str, int]) -> None:
    """Run ONNX's shape inference as onnxruntime does, but accept more types than its schemas."""
    if schema.name in _NOT_INFERRED:
        return
    operands: list[tuple[str, str, tuple[int | None, ...] | None, np.ndarray | None]] = []
    for name, value in zip(node.proto.input, node.inputs):
        if value is None:
            if name:
                return  # an optional value without content
            continue
        known = _type_of(value)
        if known is None:
            return  # a sequence
        operands.append((name, *known, _small_constant(value)))
    key = _inference_key(node, schema, opsets, operands)
    if key is not None and key in node.importer.valid_nodes:
        return
    types = {
        name: helper.make_tensor_type_proto(_element_type(dtype), extents)
        for name, dtype, extents, _ in operands
    }
    data = {
        name: onnx.numpy_helper.from_array(array, name)
        for name, _, _, array in operands
        if array is not None
    }
    proto = node.proto
    if any(entry.name not in schema.types for entry in proto.attribute):
        proto = onnx.NodeProto()
        proto.CopyFrom(node.proto)
        del proto.attribute[:]
        proto.attribute.extend(e for e in node.proto.attribute if e.name in schema.types)
    imports = [helper.make_opsetid(*entry) for entry in opsets.items()]
    try:
        onnx.shape_inference.infer_node_outputs(
            schema.schema, proto, types, data, opset_imports=imports
        )
    except onnx.shape_inference.InferenceError as error:
        if "TypeInferenceError" not in str(error):
            lines = [line for line in str(error).splitlines() if line.strip()]
            reason = _PREFIX.sub("", lines[0]).strip().rstrip(".")
            raise node.unsupported(
                f"{reason}; onnx.checker.check_model(model, full_check=True) rejects the model too"
            ) from error
    except Exception as error:
        logger.debug("ONNX can't check %s: %s", node.proto.op_type, error)
    if key is not None:
        node.importer.valid_nodes.add(key)


def _inference_key(
    node: Node, schema: _Schema, opsets: Mapping[str, int], operands: list[Any]
) -> tuple[Any, ...] | None:
    """All that shape inference reads but value names; None if large data would fill memory."""
    arrays = [array for *_, array in operands if array is not None]
    if node.proto.ByteSize() > LARGEST_KEY or any(a.nbytes > LARGEST_KEY for a in arrays):
        return None
    inputs = [bool(name) for name in node.proto.input]
    constants = [
        None if array is None else (str(array.dtype), array.shape, array.tobytes())
        for *_, array in operands
    ]
    return (
        (schema.domain, schema.name, schema.since_version, *opsets.items()),
        tuple(entry.SerializeToString() for entry in node.proto.attribute),
        (*inputs, len(node.proto.output)),
        tuple((dtype, extents) for _, dtype, extents, _ in operands),
        tuple(constants),
    )


def _type_of(value: relax.Expr) -> tuple[str, tuple[int | None, ...] | None] | None:
    """Dtype and extents of a tensor, None for those unknown; None for other values."""
    if isinstance(value, relax.ShapeExpr):
        return "int64", (len(value.values),)
    if tvm.ir.is_prim_expr(value):
        return dtype_of(value), ()
    if not isinstance(value.ty, relax.TensorType):
        return None
    extents: list[Any] | None = shape_of(value)
    if extents is None and value.ty.ndim >= 0:
        extents = [None] * value.ty.ndim
    if extents is None:
        return dtype_of(value), None
    return dtype_of(value), tuple(each if isinstance(each, int) else None for each in extents)


def _element_type(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(numpy_type(dtype))


def _small_constant(value: relax.Expr) -> np.ndarray | None:
    """Value of a constant that is small enough to be copied; None for others."""
    shape = shape_of(value) if isinstance(value.ty, relax.TensorType) else []
    if shape is None or not all(isinstance(each, int) for each in shape):
        return None
    return constant_value(value) if np.prod(shape, dtype="int64") <= LARGEST_DATA else None
