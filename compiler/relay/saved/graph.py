"""Node graph of old `tvm.ir.save_json`: nodes, attribute values, tensors.

The file does not distinguish numbers, strings and node indices, so readers request each field by
kind: `node` for objects, `text`, `integer`, `real` for values.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ...errors import SavedModuleError
from .arrays import decode_array

_NO_NUMBER = (OverflowError, TypeError, ValueError)
_MAX_DEPTH = 200


class Graph:
    """Parsed node graph; SavedModuleError if the text is not JSON or not a node graph.

    `text`: `{"root": i, "nodes": [...], "b64ndarrays": [...]}`. `source`: name used in errors.
    """

    def __init__(self, text: str, source: str = "json") -> None:
        self.source = source
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SavedModuleError(f"{source}: this is not JSON: {error}") from None
        if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
            raise SavedModuleError(
                f"{source}: not a node graph of tvm.ir.save_json: the list `nodes` is missing"
            )
        self.nodes: list[Any] = document["nodes"]
        for index, node in enumerate(self.nodes):
            if not isinstance(node, dict):
                raise SavedModuleError(f"{source}: node {index} is {node!r:.60}, not an object")
        self._encoded: Any = document.get("b64ndarrays", [])
        if not isinstance(self._encoded, list):
            raise SavedModuleError(f"{source}: `b64ndarrays` is not a list")
        self._arrays: dict[int, Any] = {}
        self.root = self._index(document.get("root"), "the document", "root")

    def error(self, index: int, message: str) -> SavedModuleError:
        return SavedModuleError(f"{self.source}: node {index} ({self.kind(index)}): {message}")

    def kind(self, index: int) -> str:
        """`type_key` of a node; "" for the null reference."""
        node = self.nodes[index]
        kind = node.get("type_key") if isinstance(node, dict) else None
        if not isinstance(kind, str):
            raise SavedModuleError(f"{self.source}: node {index} has no `type_key`")
        return kind

    def has(self, index: int, name: str) -> bool:
        return name in self._fields(index)

    def node(self, index: int, name: str) -> int:
        """Node index in a field; 0 (null) if the field is missing."""
        value = self._fields(index).get(name)
        return 0 if value is None else self._index(value, f"node {index}", name)

    def text(self, index: int, name: str, default: str = "") -> str:
        """String field, stored inline or as a reference to a String node."""
        value = self._fields(index).get(name)
        if value is None:
            return default
        if (
            isinstance(value, str)
            and value.isdecimal()
            and len(value) < 12
            and int(value) < len(self.nodes)
        ):
            target = int(value)
            if target == 0:
                return default
            if self.kind(target) in ("runtime.String", "tir.StringImm", "SourceName"):
                return self.payload(target)
        return str(value)

    def integer(self, index: int, name: str, default: int = 0) -> int:
        value = self._fields(index).get(name, default)
        try:
            return int(value)
        except _NO_NUMBER:
            raise self.error(index, f"{name} is {value!r:.60}, no whole number") from None

    def real(self, index: int, name: str) -> float:
        value = self._fields(index).get(name)
        try:
            return float(value)  # type: ignore[arg-type]
        except _NO_NUMBER:
            raise self.error(index, f"{name} is {value!r:.60}, no number") from None

    def payload(self, index: int) -> str:
        """Text of a node that is saved as a string, such as an operator's name."""
        node = self.nodes[index]
        if "repr_b64" in node:
            return self._long_text(index, node["repr_b64"])
        if "repr_str" in node:
            return str(node["repr_str"])
        fields = self._fields(index)
        for old_name in ("global_key", "value"):
            if old_name in fields:
                return self.text(index, old_name)
        return ""

    def items(self, index: int) -> list[int]:
        """Elements of an Array; none for null."""
        if self.kind(index) not in ("Array", ""):
            raise self.error(index, "an Array is needed here")
        return [self._index(i, f"node {index}", "data") for i in self._data(index)]

    def pairs(self, index: int) -> list[tuple[int, int]]:
        """Items of a Map with object keys."""
        data = [self._index(i, f"node {index}", "data") for i in self._data(index)]
        if len(data) % 2:
            raise self.error(index, "a Map has as many keys as values")
        return list(zip(data[::2], data[1::2]))

    def named(self, index: int) -> dict[str, int]:
        """Items of a Map with string keys."""
        if self.kind(index) == "":
            return {}
        if self.kind(index) not in ("Map", "StrMap"):
            raise self.error(index, "a Map is needed here")
        keys = self.nodes[index].get("keys")
        data = [self._index(i, f"node {index}", "data") for i in self._data(index)]
        if keys is None:
            return {self.payload(key): value for key, value in self.pairs(index)}
        if not isinstance(keys, list) or len(keys) != len(data):
            raise self.error(index, "a Map has as many keys as values")
        return {str(key): value for key, value in zip(keys, data)}

    def array(self, index: int, name: str) -> Any:
        """Tensor of an NDArray field."""
        number = self.integer(index, name, -1)
        if not 0 <= number < len(self._encoded):
            raise self.error(index, f"{name} is tensor {number} of {len(self._encoded)}")
        if number not in self._arrays:
            self._arrays[number] = decode_array(
                self._encoded[number], f"{self.source}: tensor {number}"
            )
        return self._arrays[number]

    def value(self, index: int, depth: int = 0) -> Any:
        """Attribute value as plain Python (tensors as arrays); expressions are read by `module`."""
        if depth > _MAX_DEPTH:
            raise self.error(index, "the value is nested too deep, or contains itself")
        kind = self.kind(index)
        if kind in ("", "tir.Any"):
            return None
        if kind in ("IntImm", "runtime.BoxInt"):
            value = self._number(index)
            return bool(value) if self._fields(index).get("dtype") == "bool" else value
        if kind == "runtime.BoxBool":
            return self.payload(index) in ("1", "true", "True")
        if kind in ("FloatImm", "runtime.BoxFloat"):
            return self.real(index, "value") if self.has(index, "value") else self._real(index)
        if kind in ("runtime.String", "tir.StringImm"):
            return self.payload(index)
        if kind == "Array":
            return [self.value(item, depth + 1) for item in self.items(index)]
        if kind in ("Map", "StrMap"):
            return {key: self.value(at, depth + 1) for key, at in self.named(index).items()}
        if kind == "relay.Constant":
            return self.array(index, "data")
        if kind == "VirtualDevice":
            return {
                "device_type": self.integer(index, "device_type_int", -1),
                "device_id": self.integer(index, "virtual_device_id", -1),
                "memory_scope": self.text(index, "memory_scope"),
            }
        if kind == "DictAttrs":
            return self.value(self.node(index, "__dict__"), depth + 1)
        if kind.startswith("tir.") or kind in ("relay.Var", "IncompleteType"):
            return None  # symbolic dimension, or repeated operand
        raise self.error(index, "this kind of node is not an attribute value")

    def _number(self, index: int) -> int:
        text = self._fields(index).get("value", self.nodes[index].get("repr_str"))
        try:
            return int(text)
        except _NO_NUMBER:
            raise self.error(index, f"{text!r:.60} is not a whole number") from None

    def _real(self, index: int) -> float:
        try:
            return float(self.payload(index))
        except _NO_NUMBER:
            raise self.error(index, f"{self.payload(index)!r:.60} is not a number") from None

    def _fields(self, index: int) -> dict[str, Any]:
        node = self.nodes[index]
        fields = node.get("attrs", {}) if isinstance(node, dict) else None
        if not isinstance(fields, dict):
            raise SavedModuleError(f"{self.source}: node {index} has no fields")
        return fields

    def _data(self, index: int) -> list[Any]:
        data = self.nodes[index].get("data", [])
        if not isinstance(data, list):
            raise self.error(index, "`data` is not a list")
        return data

    def _index(self, value: Any, where: str, name: str) -> int:
        try:
            index = int(value)
        except _NO_NUMBER:
            index = -1
        if isinstance(value, (bool, float)) or not 0 <= index < len(self.nodes):
            raise SavedModuleError(
                f"{self.source}: {where}: {name} refers to node {value!r:.60}, and there are "
                f"{len(self.nodes)} nodes"
            )
        return index

    def _long_text(self, index: int, encoded: Any) -> str:
        """`repr_b64`: 8-byte length, then the text."""
        from .arrays import decode_base64

        data = decode_base64(encoded, f"{self.source}: node {index}")
        size = int(np.frombuffer(data[:8], "<u8")[0]) if len(data) >= 8 else -1
        if size == len(data) - 8:
            data = data[8:]
        return data.decode("utf-8", "replace")
