"""Refuses damaged JSON of `tvm.ir.save_json` at which TVM's reader ends the process.

    nodes: [{"type": "ffi.Array", "data": [0]}, ...]

TVM 0.27 reads a node by reading those that it refers to, without an end where they refer to each
other, and down to where the stack ends. What TVM writes has each node behind those it refers to.
"""

from __future__ import annotations

import json
from typing import Any

_DEEPEST = 4000
"""Nodes within nodes; TVM's reader needs about 1 KB of the stack for each."""

_LITERALS = ("int", "bool", "float", "DataType", "Device", "ffi.BigInt", "str", "bytes")
"""Types of fields that hold a value, not the number of a node."""


def check_document(document: Any) -> None:
    """Refuse a document whose nodes are not in order.

    Raises
    ------
    ValueError
        It is not a document of `tvm.ir.save_json`, or is damaged.
    """
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise ValueError("it has no list of nodes")
    literals: dict[str, frozenset[str]] = {}
    depths: list[int] = []
    with_null: set[int] = set()  # arrays
    for number, node in enumerate(document["nodes"]):
        if not isinstance(node, dict) or not isinstance(node.get("type"), str):
            raise ValueError(f"node {number} has no type")
        kind, depth = node["type"], 0
        if kind not in literals:
            literals[kind] = _literal_fields(kind)
        for other in _references(node.get("data"), kind, literals[kind]):
            if not 0 <= other < number:
                raise ValueError(f"node {number} refers to node {other}, which is not before it")
            depth = max(depth, 1 + depths[other])
            if kind == "ffi.Array" and document["nodes"][other]["type"] == "None":
                with_null.add(number)
            if other in with_null and kind.startswith(("ir.", "relax.expr.")):
                raise ValueError(f"node {number}, {kind}, lacks a part")
        if depth > _DEEPEST:
            raise ValueError(f"nodes are nested more than {_DEEPEST} deep")
        depths.append(depth)


def _references(data: Any, kind: str, literals: frozenset[str]) -> list[int]:
    if kind in ("int", "bool", "float"):
        return []
    if isinstance(data, dict):
        data = [value for name, value in data.items() if name not in literals]
    return [each for each in data if type(each) is int] if isinstance(data, list) else []


def _literal_fields(kind: str) -> frozenset[str]:
    """Names of a type's fields that hold values, of those that it inherits too."""
    from tvm_ffi import core

    try:
        info: Any = core._lookup_or_register_type_info_from_type_key(kind)
    except ValueError:
        return frozenset()  # not a type of objects; TVM refuses what it does not know
    found = set()
    while info is not None:
        for each in info.fields or ():
            schema = json.loads((each.metadata or {}).get("type_schema", "{}"))
            if schema.get("type") in _LITERALS:
                found.add(each.name)
        info = getattr(info, "parent_type_info", None)
    return frozenset(found)
