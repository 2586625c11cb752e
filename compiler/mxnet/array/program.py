"""A symbol compiled for one signature, and the states in which calls of it run.

A call hands its tensors to the virtual machine's `main` directly; nothing is looked up by name.
Each concurrent call has its own state, a virtual machine and, with `static_alloc`, the
intermediate tensors, so that calls from several threads run side by side.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from compiler.backends import get_partitioner
from compiler.errors import BlockArgumentError, UnknownBackendError
from compiler.mxnet.symbol.symbol import Symbol
from compiler.mxnet_format.graph import Graph, Node
from compiler.mxnet_format.subgraph_node import (
    library_operator,
    own_attrs,
    subgraph_info_of,
    visible_attrs,
)
from compiler.runtime import forks
from compiler.runtime.bound_memory import copied_where_bound

from ..device import Device

if TYPE_CHECKING:
    from compiler.runtime.factory import FactoryModule

    from .value import Shape

_ALIGNMENT = 64
"""Bytes; compiled kernels load whole vectors."""

_COMPILING = threading.RLock()
"""TVM's compiler is not made to be entered twice at a time."""


@dataclass(frozen=True)
class Flags:
    """How a cached operator runs; `HybridBlock.hybridize` explains them."""

    partition_if_dynamic: bool = True
    static_alloc: bool = False
    static_shape: bool = False
    inline_limit: int = 2
    forward_bulk_size: int | None = None
    backward_bulk_size: int | None = None

    def check(self) -> None:
        """Raise BlockArgumentError where a value makes no sense."""
        for name in ("static_alloc", "static_shape", "partition_if_dynamic"):
            require_bool(name, getattr(self, name))
        sizes = {
            "inline_limit": (self.inline_limit, 0),
            "forward_bulk_size": (self.forward_bulk_size, 1),
            "backward_bulk_size": (self.backward_bulk_size, 1),
        }
        for name, (value, least) in sizes.items():
            if value is not None and (not isinstance(value, int) or value < least):
                raise BlockArgumentError(f"{name} must be an int from {least} on, not {value!r}")


def require_bool(name: str, value: Any) -> None:
    """Raise BlockArgumentError unless the value of a flag is True or False."""
    if not isinstance(value, bool):
        raise BlockArgumentError(f"{name} must be True or False, not {value!r:.60}")


class Program:
    """A compiled symbol.

    * `types`: of the variables that calls give, in the order in which they give them.
    * `params`: values of the other variables, compiled in.
    * `library`: what was built.
    """

    def __init__(
        self,
        symbol: Symbol,
        types: Mapping[str, tuple[Shape, str]],
        params: Mapping[str, Any],
        device: Device,
        flags: Flags,
    ) -> None:
        with _COMPILING:
            self.library = _compile(symbol, types, params, device, flags)
        self.device = device
        self.outputs = [(info.static_shape, info.dtype) for info in self.library.metadata.outputs]
        taken = [info.name for info in self.library.metadata.inputs]
        names = list(types)
        self._positions = [names.index(name) for name in taken]
        self._in_order = self._positions == list(range(len(names)))
        self._single = len(self.outputs) == 1
        self._tvm_device = device.tvm_device()
        self._states: deque[Callable[..., Any]] = deque()
        self._states.append(self._new_state())
        self._weights = self.library.weights_memory(self._tvm_device)

    def __call__(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Run on tensors in the order of `types`; returns the outputs, which are the caller's."""
        if not self._in_order:
            tensors = [tensors[position] for position in self._positions]
        for tensor in tensors:
            if tensor.data_ptr() % _ALIGNMENT:
                tensors = [_aligned(each) for each in tensors]
                break
        forks.note_kernels()
        try:
            state = self._states.pop()
        except IndexError:  # other threads are using all of them
            state = self._new_state()
        try:
            result = state(*tensors)
        finally:
            self._states.append(state)
        results = (result,) if self._single else result
        return copied_where_bound(results, tensors, self._weights)

    @property
    def states(self) -> int:
        """How many calls have run at the same time, at most."""
        return len(self._states)

    def _new_state(self) -> Callable[..., Any]:
        return self.library.entry(self._tvm_device)


def _required_passes(flags: Flags) -> list[str]:
    from compiler.lowering.codegen import bulk_segments, static_allocation

    if flags.static_alloc:
        return [static_allocation.NAME]
    size = flags.forward_bulk_size
    return [] if size is None else [bulk_segments.required_pass(size)]


def _aligned(tensor: Any) -> Any:
    """The tensor, or a copy of it where its memory is not aligned."""
    return tensor.copyto(tensor.device) if tensor.data_ptr() % _ALIGNMENT else tensor


def _compile(
    symbol: Symbol,
    types: Mapping[str, tuple[Shape, str]],
    params: Mapping[str, Any],
    device: Device,
    flags: Flags,
) -> FactoryModule:
    import tvm

    from compiler import relay
    from compiler.relay.frontend.mxnet import import_symbol

    mod, values = import_symbol(
        symbol if flags.static_alloc else _inline_small(symbol, flags.inline_limit),
        {name: shape for name, (shape, _) in types.items()},
        {name: dtype for name, (_, dtype) in types.items()},
        params,
    )
    outer = tvm.transform.PassContext.current()
    # On a GPU memory is kept and launches are replayed by a CUDA graph.
    replays = flags.static_shape and not device.is_cpu
    required = [*outer.required_pass, *([] if replays else _required_passes(flags))]
    with tvm.transform.PassContext(
        opt_level=max(3, outer.opt_level),
        required_pass=required,
        disabled_pass=list(outer.disabled_pass),
        config=dict(outer.config),
    ):
        return relay.build(mod, target=device.target(), params=values)


def _inline_small(symbol: Symbol, limit: int) -> Symbol:
    """The symbol with subgraphs of at most `limit` operators no longer compiled on their own.

    A subgraph for which its backend has set attributes, such as a target, which it compiles itself,
    or which an operator of its library runs, is left to the backend. A `limit` of 0 changes
    nothing.
    """
    graph = symbol.graph
    nodes = [_inlined(node) if _is_small(node, limit) else node for node in graph.nodes]
    if all(new is old for new, old in zip(nodes, graph.nodes)):
        return symbol
    return Symbol(Graph(nodes, graph.heads, graph.attrs))


def _is_small(node: Node, limit: int) -> bool:
    info = subgraph_info_of(node)
    if info is None or own_attrs(node) or _operators(node.subgraphs) > limit:
        return False
    if library_operator(node) is not None:
        return False
    try:
        return not get_partitioner(info.backend).compiles(info.strategy)
    except UnknownBackendError:  # the symbol was loaded without it
        return True


def _operators(graphs: Sequence[Graph]) -> int:
    return sum(
        _operators(node.subgraphs) or 1
        for graph in graphs
        for node in graph.nodes
        if not node.is_variable
    )


def _inlined(node: Node) -> Node:
    # Without this record, the name that its strategy chose could be another library's operator.
    return replace(node, op="_CachedOp", attrs=visible_attrs(node.attrs))
