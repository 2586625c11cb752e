"""A network as the graph tuner sees it: its convolutions, and the values between them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from schedules.conv2d import Conv2dWorkload
from schedules.x86.conv2d_template import NAME as CONV2D
from schedules.x86.depthwise_template import NAME as DEPTHWISE

from ...ir.constants import static_shape
from ...lowering.selection.layout_rules import RULES
from ...lowering.selection.ops.conv2d import describe

Shape = tuple[int, ...]


@dataclass
class Node:
    """A convolution, or an operator that follows the layouts of several values.

    Attributes
    ----------
    workload : Conv2dWorkload or None
        None for an operator that follows.
    inputs : list of int or None
        Nodes that the operands come from; None for a value that is in the plain layout.
    shape : tuple of int
        Of the first operand, (N, C, H, W).
    out_shape : tuple of int
    read_plain : bool
        Whether an operator without blocked layouts reads the result.
    """

    workload: Conv2dWorkload | None
    inputs: list[int | None]
    shape: Shape
    out_shape: Shape
    read_plain: bool = False

    @property
    def task(self) -> tuple | None:
        """Workload of the AutoTVM task, (name, *arguments)."""
        if self.workload is None:
            return None
        name = DEPTHWISE if self.workload.is_depthwise else CONV2D
        return (name, *self.workload.autotvm_args())


@dataclass
class Network:
    """Nodes in the order of execution."""

    nodes: list[Node] = field(default_factory=list)


def network_of(mod: tvm.IRModule, target: Target, operators: Collection[str]) -> Network:
    """The convolutions of a module's main, simplified as a build would.

    Parameters
    ----------
    operators : collection of str
        Names of the operators that are tuned; of them, "nn.conv2d" is known.
    """
    from ...lowering.simplify import simplify

    with target, tvm.transform.PassContext(opt_level=3):
        main = simplify(mod)["main"]
    return _Reader("nn.conv2d" in operators).read(main)


class _Reader:
    def __init__(self, convolutions: bool) -> None:
        self.convolutions = convolutions
        self.network = Network()
        self.source: dict[relax.Var, int | None] = {}

    def read(self, main: relax.Function) -> Network:
        for block in main.body.blocks:
            for binding in block.bindings:
                self.source[binding.var] = self._node_of(binding.value)
        self._plain(main.body.body)
        return self.network

    def _node_of(self, value: relax.Expr) -> int | None:
        if isinstance(value, relax.Var):
            return self.source.get(value)
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            self._plain(value)
            return None
        name = str(value.op.name)
        if name == "relax.nn.conv2d" and self.convolutions:
            return self._convolution(value)
        shape = static_shape(value)
        if name in RULES and shape is not None and len(shape) == 4:
            return self._following(value, shape)
        self._plain(value)
        return None

    def _convolution(self, call: relax.Call) -> int | None:
        workload = describe(call)
        if workload is None or (workload.groups > 1 and not workload.is_depthwise):
            self._plain(call)
            return None
        shape, out = static_shape(call.args[0]), static_shape(call)
        assert shape is not None and out is not None
        return self._add(Node(workload, [self._of(call.args[0])], shape, out))

    def _following(self, call: relax.Call, shape: Shape) -> int | None:
        operands = [arg for arg in _tensors(call) if isinstance(arg, relax.Var)]
        sources = [self._of(arg) for arg in operands if len(static_shape(arg) or ()) == 4]
        known = [source for source in sources if source is not None]
        if len(sources) <= 1 or not known:
            return known[0] if known else None
        return self._add(Node(None, list(sources), shape, shape))

    def _add(self, node: Node) -> int:
        self.network.nodes.append(node)
        return len(self.network.nodes) - 1

    def _of(self, expr: relax.Expr) -> int | None:
        return self.source.get(expr) if isinstance(expr, relax.Var) else None

    def _plain(self, expr: relax.Expr) -> None:
        """Note that an expression reads its operands in the plain layout."""
        operands = [expr] if isinstance(expr, relax.Var) else _tensors(expr)
        for operand in operands:
            node = self._of(operand)
            if node is not None:
                self.network.nodes[node].read_plain = True


def _tensors(expr: Any) -> list[Any]:
    found: list[Any] = []
    for arg in getattr(expr, "args", getattr(expr, "fields", ())):
        found += list(arg.fields) if isinstance(arg, relax.Tuple) else [arg]
    return found
