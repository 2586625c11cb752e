"""The `#[metadata]` section of Relay text: the objects for `meta[relay.Constant][0]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import SavedModuleError
from ..saved.attributes import read_attributes
from ..saved.graph import Graph
from . import syntax


class AttributesObject(dict[str, Any]):
    """Complete attribute object of a call: `f(%x, meta[relay.attrs.InitOpAttrs][0])`."""


class Metadata:
    """Objects by type key and index, decoded on demand; entries of `given` have precedence."""

    def __init__(
        self, text: str | None, source: str, given: Mapping[str, Any] | None = None
    ) -> None:
        self._given = dict(given or {})
        self._graph: Graph | None = None
        self._table: dict[str, list[int]] = {}
        self._decoded: dict[tuple[str, int], Any] = {}
        if text is not None and not text.isspace():
            graph = self._graph = Graph(text, f"{source}: metadata")
            self._table = {
                key: graph.items(index) for key, index in graph.named(graph.root).items()
            }

    def get(self, key: str, number: int) -> Any:
        """Look up the object `meta[key][number]`.

        Returns `syntax.Constant` for relay.Constant, `AttributesObject` for relay.attrs.*, plain
        Python values for the rest. Raises SavedModuleError: the object does not exist or cannot be
        decoded.
        """
        if (key, number) not in self._decoded:
            self._decoded[key, number] = self._decode(key, number)
        return self._decoded[key, number]

    def _decode(self, key: str, number: int) -> Any:
        given = self._given.get(key)
        if given is not None and number < len(given):
            return _from_outside(given[number])
        entries = self._table.get(key, [])
        if number >= len(entries):
            raise SavedModuleError(
                f"there is no meta[{key}][{number}]; the metadata section has "
                f"{len(entries)} of them"
            )
        assert self._graph is not None
        index = entries[number]
        kind = self._graph.kind(index)
        if kind == "relay.Constant":
            return syntax.Constant(self._graph.array(index, "data"))
        if kind.startswith("relay.attrs."):
            return AttributesObject(read_attributes(self._graph, index))
        return self._graph.value(index)


def _from_outside(value: Any) -> Any:
    """Convert an object of `init_meta_table`; constants, tensors and arrays become constants."""
    data = getattr(value, "value", getattr(value, "data", None))
    if data is not None and hasattr(data, "numpy"):
        return syntax.Constant(data.numpy())
    if hasattr(value, "numpy"):
        return syntax.Constant(value.numpy())
    if type(value).__module__ == "numpy":
        return syntax.Constant(value)
    return value
