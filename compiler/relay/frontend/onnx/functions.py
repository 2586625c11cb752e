"""ONNX operators that are defined by other operators: the function bodies of their schemas."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import defs
from tvm import relax

from compiler.ir.constants import numpy_type, static_shape

from .node import Node


def has_function(proto: onnx.NodeProto, domain: str, opset: int) -> bool:
    """Whether ONNX defines the operator by a function body."""
    schema = _schema(proto, domain, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def function_body(node: Node, domain: str) -> onnx.FunctionProto:
    """The function that defines `node` for its input types; UnsupportedOperatorError if none."""
    schema = _schema(node.proto, domain, node.opset)
    assert schema is not None
    body = onnx.FunctionProto()
    if schema.has_context_dependent_function:
        versions = schema.context_dependent_function_opset_versions
        types = [_type_proto(value) for value in node.inputs]
        serialized = schema.get_context_dependent_function_with_opset_version(
            _version(versions, node.opset), node.proto.SerializeToString(), types
        )
    else:
        versions = schema.function_opset_versions
        serialized = schema.get_function_with_opset_version(_version(versions, node.opset))
    body.ParseFromString(serialized)
    if not body.node:
        raise node.unsupported("ONNX defines no function body for these types")
    return body


def default_attributes(node: Node, domain: str) -> dict[str, onnx.AttributeProto]:
    """Attributes of the operator that have default values, by name."""
    schema = _schema(node.proto, domain, node.opset)
    defaults = {} if schema is None else {k: v.default_value for k, v in schema.attributes.items()}
    return {name: value for name, value in defaults.items() if value.type}


def optional_attributes(node: Node, domain: str) -> dict[str, Any]:
    """Every attribute of the operator that may be left out, with its default or None."""
    schema = _schema(node.proto, domain, node.opset)
    if schema is None:
        return {}
    return {
        name: onnx.helper.get_attribute_value(entry.default_value)
        if entry.default_value.type
        else None
        for name, entry in schema.attributes.items()
        if not entry.required
    }


def _schema(proto: onnx.NodeProto, domain: str, opset: int):  # type: ignore[no-untyped-def]
    if not defs.has(proto.op_type, opset, domain):
        return None
    return defs.get_schema(proto.op_type, opset, domain)


def _version(versions: list[int], opset: int) -> int:
    """The newest body that is not newer than the model."""
    return max((version for version in versions if version <= opset), default=min(versions))


def _type_proto(value: relax.Expr) -> bytes:
    if value is None or not isinstance(value.ty, relax.TensorType):
        return onnx.TypeProto().SerializeToString()
    dtype = onnx.helper.np_dtype_to_tensor_dtype(numpy_type(str(value.ty.dtype)))
    return onnx.helper.make_tensor_type_proto(dtype, static_shape(value)).SerializeToString()
