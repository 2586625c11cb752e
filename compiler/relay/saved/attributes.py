"""Attribute classes of saved modules: fields and their encodings."""

from __future__ import annotations

import functools
from typing import Any

from ...errors import SavedModuleError
from ...support.text_tables import read_table
from .graph import Graph

_PREFIX = "relay.attrs."


@functools.lru_cache(maxsize=1)
def classes() -> dict[str, dict[str, str]]:
    """Map class names, without `relay.attrs.`, to fields and their kinds."""
    found: dict[str, dict[str, str]] = {}
    for names, held in read_table(__file__, "attributes.txt"):
        fields = {name: kind for name, _, kind in (each.partition(":") for each in held.split())}
        found.update((f"{name}Attrs", fields) for name in names.split())
    return found


def read_attributes(graph: Graph, index: int) -> dict[str, Any]:
    """Decode a call's attributes, omitting nulls; SavedModuleError for unknown classes or kinds."""
    kind = graph.kind(index)
    if kind == "":
        return {}
    if kind == "DictAttrs":
        held = graph.value(index)
        if not isinstance(held, dict):
            raise graph.error(index, "its `__dict__` is not a Map")
        return held
    fields = classes().get(kind.removeprefix(_PREFIX))
    if fields is None or not kind.startswith(_PREFIX):
        raise SavedModuleError(
            f"{graph.source}: node {index}: attributes of the class {kind} are not known"
        )
    found = {}
    for name, form in fields.items():
        if graph.has(index, name):
            value = _read_field(graph, index, name, form)
            if value is not None:
                found[name] = value
    return found


def _read_field(graph: Graph, index: int, name: str, form: str) -> Any:
    if form == "i":
        return graph.integer(index, name)
    if form == "b":
        return bool(graph.integer(index, name))
    if form == "d":
        return graph.real(index, name)
    if form in ("s", "t"):
        return graph.text(index, name) or (None if form == "t" else "")
    return graph.value(graph.node(index, name))
