"""Validation of ONNX nodes before conversion: schemas, shapes and attribute values."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Mapping
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
from .node import Node, constant_value, describe, dtype_of
from .shape_expr import shape_of

logger = logging.getLogger(__name__)

LARGEST_DATA = 1024
"""Largest number of elements of a constant that ONNX's shape inference receives by value."""

_NOT_INFERRED = frozenset(["Range"])
"""Operators that ONNX's function bodies call with shapes that ONNX's inference rejects."""

_PREFIX = re.compile(r"\[(Shape|Type)InferenceError\]\s*|\(op_type:[^)]*\):?\s*")


_HARMLESS = frozenset(["consumed_inputs", "is_test", "output_sequence"])
"""Attributes of old operator sets that change no result of inference."""

_KINDS = {number: name.lower() for name, number in onnx.AttributeProto.AttributeType.items()}


def validate(
    node: Node, domain: str, opsets: Mapping[str, int], from_model: bool, has_schema: bool
) -> None:
    """Check a node before its conversion.

    Parameters
    ----------
    domain : str
        Domain of the node's operator, "" for ONNX's own.
    opsets : mapping of str to int
        Operator set versions by domain.
    from_model : bool
        Whether the node is in the model; converters create others.
    has_schema : bool
        Whether ONNX's schema describes the operator.

    Raises
    ------
    UnsupportedOperatorError
        The node is invalid; the message names the attribute and the allowed values.
    """
    schema = None
    if from_model and has_schema and defs.has(node.proto.op_type, node.opset, domain):
        schema = defs.get_schema(node.proto.op_type, node.opset, domain)
    if schema is not None and not schema.deprecated:
        _check_schema(node, schema)
    if domain == "" and has_schema:
        check_attributes(node, from_model)
    if schema is not None and not schema.deprecated:
        _infer_shapes(node, schema, opsets)


def check_names(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Check that every value of a graph is defined once, and so of the graphs in its nodes.

    Raises
    ------
    FrontendError
        A value has two definitions; the message names the second node.
    """
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


def _check_schema(node: Node, schema: Any) -> None:
    """Check the names and types of the attributes and the number of operands."""
    seen: set[str] = set()
    for entry in node.proto.attribute:
        if entry.name in seen:
            raise node.unsupported(f"the attribute {entry.name} is given twice")
        seen.add(entry.name)
        if entry.name not in schema.attributes:
            _check_other_versions(node, schema, entry)
            continue
        expected = int(schema.attributes[entry.name].type)
        if entry.type != expected:
            given, wanted = _KINDS[entry.type], _KINDS[expected]
            raise node.unsupported(
                f"the attribute {entry.name} has the type {given}; expected {wanted}"
            )
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in seen:
            raise node.unsupported(f"the attribute {name} is missing")
    for count, least, most, what in (
        (len(node.proto.input), schema.min_input, schema.max_input, "inputs"),
        (len(node.proto.output), 1, schema.max_output, "outputs"),
    ):
        if not least <= count <= most:
            bound = f"at least {least}" if count < least else f"at most {most}"
            raise node.unsupported(f"the node has {count} {what}; expected {bound}")


def _check_other_versions(node: Node, schema: Any, entry: AttributeProto) -> None:
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


def _infer_shapes(node: Node, schema: Any, opsets: Mapping[str, int]) -> None:
    """Run ONNX's shape inference, as onnxruntime does when it loads a model.

    Its errors on types are ignored: the importer accepts more types than ONNX's schemas.
    """
    if schema.name in _NOT_INFERRED:
        return
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name, value in zip(node.proto.input, node.inputs):
        if value is None:
            if name:
                return  # an optional value without content
            continue
        known = _type_of(value)
        if known is None:
            return  # a sequence
        types[name] = known
        array = _small_constant(value)
        if array is not None:
            data[name] = onnx.numpy_helper.from_array(array, name)
    proto = node.proto
    if any(entry.name not in schema.attributes for entry in proto.attribute):
        proto = onnx.NodeProto()
        proto.CopyFrom(node.proto)
        del proto.attribute[:]
        proto.attribute.extend(e for e in node.proto.attribute if e.name in schema.attributes)
    imports = [helper.make_opsetid(*entry) for entry in opsets.items()]
    try:
        onnx.shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=imports)
    except onnx.shape_inference.InferenceError as error:
        if "TypeInferenceError" not in str(error):
            lines = [line for line in str(error).splitlines() if line.strip()]
            reason = _PREFIX.sub("", lines[0]).strip().rstrip(".")
            raise node.unsupported(
                f"{reason}; onnx.checker.check_model(model, full_check=True) rejects the model too"
            ) from error
    except Exception as error:
        logger.debug("ONNX can't check %s: %s", node.proto.op_type, error)


def _type_of(value: relax.Expr) -> onnx.TypeProto | None:
    """ONNX type of a tensor; None for other values."""
    if isinstance(value, relax.ShapeExpr):
        return helper.make_tensor_type_proto(onnx.TensorProto.INT64, [len(value.values)])
    if tvm.ir.is_prim_expr(value):
        return helper.make_tensor_type_proto(_element_type(dtype_of(value)), [])
    if not isinstance(value.ty, relax.TensorType):
        return None
    extents: list[Any] | None = shape_of(value)
    if extents is None and value.ty.ndim >= 0:
        extents = [None] * value.ty.ndim
    if extents is not None:
        extents = [each if isinstance(each, int) else None for each in extents]
    return helper.make_tensor_type_proto(_element_type(dtype_of(value)), extents)


def _element_type(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(numpy_type(dtype))


def _small_constant(value: relax.Expr) -> np.ndarray | None:
    """Value of a constant that is small enough to be copied; None for others."""
    shape = shape_of(value) if isinstance(value.ty, relax.TensorType) else []
    if shape is None or not all(isinstance(each, int) for each in shape):
        return None
    return constant_value(value) if np.prod(shape, dtype="int64") <= LARGEST_DATA else None
