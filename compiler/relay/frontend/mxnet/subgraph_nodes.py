"""Subgraph nodes of a partitioned symbol: functions of the module, as if it was partitioned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax

from compiler.errors import FrontendError
from compiler.mxnet_format.graph import Node
from compiler.mxnet_format.subgraph_node import SubgraphInfo, own_attrs, subgraph_info_of


class ClaimedBindings:
    """Notes which bindings come from the body of a partitioned subgraph node, and outlines them.

    A constant is bound before and after each body; what lies between the two is the body's.
    Outlining leaves such bindings out, since nothing reads them.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder
        self._bodies: list[tuple[Node, SubgraphInfo, Any, Any, str]] = []
        self._inside = False

    @contextmanager
    def of(self, node: Node, runtime: str = "") -> Iterator[None]:
        """Assign bindings to the outermost node; those that call `runtime` are not compiled."""
        info = None if self._inside else subgraph_info_of(node)
        if info is None:
            yield
            return
        self._inside = True
        first = self._builder.emit(relax.const(0))
        try:
            yield
        finally:
            self._inside = False
        last = self._builder.emit(relax.const(0))
        self._bodies.append((node, info, first, last, runtime))

    def outlined(self, mod: tvm.IRModule) -> tvm.IRModule:
        """The module with each noted body that computes something as a private function."""
        if not self._bodies:
            return mod
        from compiler.backends import compiled_attrs, subgraph_name
        from compiler.ir.dataflow_graph import OPERATION, RelaxFunction
        from compiler.ir.outline import ON_COMPILE_ERROR, Group, outline

        main = RelaxFunction(mod)
        position = {variable.name: index for index, variable in enumerate(main.variables)}
        groups = []
        for node, info, first, last, runtime in self._bodies:
            window = range(position[first.name], position[last.name])
            members = [index for index in window if main.kinds[index] == OPERATION]
            if not members:
                continue
            attrs: dict[str, Any] = {
                **own_attrs(node),
                "baton.backend": info.backend,
                "baton.strategy": info.strategy,
                "baton.subgraph_op": node.op,
                "baton.subgraph_id": info.subgraph_id,
            }
            if runtime:
                inner = [each.op for each in node.subgraphs[0].nodes if not each.is_variable]
                attrs |= {"baton.operators": json.dumps(inner), "baton.runtime": runtime}
            else:
                attrs |= compiled_attrs(info.backend, info.strategy, _options(node, info))
            if info.on_compile_error != "raise":
                attrs[ON_COMPILE_ERROR] = info.on_compile_error
            name = subgraph_name(info.backend, info.strategy, info.subgraph_id)
            groups.append(Group(members, name, attrs, main.parameters))
        return outline(main, groups, share=any(info.shared for _, info, *_ in self._bodies))


def _options(node: Node, info: SubgraphInfo) -> dict[str, str]:
    try:
        found = json.loads(info.options)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise FrontendError(f"subgraph node {node.name!r}: its options are {info.options!r}")
    return found
