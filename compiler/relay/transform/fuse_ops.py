"""FuseOps: group operators of one kernel into functions with the attribute `Primitive`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ...ir.constants import leaf_types, shape_of_type
from .. import dialect
from ..nested_expressions import (
    handle,
    local_function,
    make_call,
    operands,
    post_order,
    rewrite,
    with_operands,
)
from ..op import registry
from ..op.op_def import BROADCAST, ELEMENTWISE, INJECTIVE, OPAQUE, TUPLE
from ..pass_config import setting
from ..type_infer import infer_type
from .base import body_wise
from .fusion_groups import Group, Node, partition

_MAX_SIZE = 256
_STOP = "annotation.stop_fusion"
_MARKS = ("annotation.compiler_begin", "annotation.compiler_end")


def FuseOps(fuse_opt_level: int = -1) -> Any:
    """Group operators that one kernel can compute into functions with the attribute `Primitive`.

    Parameters
    ----------
    fuse_opt_level : int
        0: one function per operator. -1: the level of the PassContext.

    Scripts set the fusion pattern of an operator with `relay.op.register_pattern`. In the
    PassContext, `relax.FuseOps.max_depth` limits the operators per function, and
    `relay.FuseOps.link_params` embeds constants. A build inlines these functions and performs
    its own fusion.
    """

    def change(body: relax.Expr) -> relax.Expr:
        context = tvm.transform.PassContext.current()
        level = context.opt_level if fuse_opt_level == -1 else fuse_opt_level
        size = int(context.config.get("relax.FuseOps.max_depth", _MAX_SIZE) or _MAX_SIZE)
        return _Fusion(body, int(level), size).run()

    return body_wise("FuseOps", 0, change)


def DefuseOps() -> Any:
    """Inline inner functions: the inverse of FuseOps."""

    def change(_old: relax.Expr, new: relax.Expr) -> relax.Expr:
        function = new.op if isinstance(new, relax.Call) else None
        if not isinstance(function, relax.Function):
            return new
        values = {handle(var): arg for var, arg in zip(function.params, new.args)}
        inner = function.body.body if isinstance(function.body, relax.SeqExpr) else function.body
        return rewrite(inner, lambda each, made: values.get(handle(each), made))

    return body_wise("DefuseOps", 3, lambda body: rewrite(body, change))


def CanonicalizeCast() -> Any:
    """Duplicate a widening cast for each of its elementwise consumers.

    Kernels then store the narrow value, and each consuming kernel casts.
    """

    def change(body: relax.Expr) -> relax.Expr:
        read: set[int] = set()

        def separate(old: relax.Expr, new: relax.Expr) -> relax.Expr:
            if not dialect.is_relay(old) or pattern_of(old) > BROADCAST:
                return new
            args = list(new.args)
            for place, operand in enumerate(old.args):
                if not _widens(operand):
                    continue
                if handle(operand) in read:
                    args[place] = dialect.call("cast", args[place].args, {"dtype": _dtype(operand)})
                read.add(handle(operand))
            return with_operands(new, args)

        return rewrite(body, separate)

    return body_wise("CanonicalizeCast", 3, change)


def _widens(expr: relax.Expr) -> bool:
    """Whether an expression is a cast to a wider dtype."""
    if not dialect.is_relay(expr) or dialect.relay_name(expr) != "cast":
        return False
    widths = [tvm.runtime.DataType(_dtype(each)).bits for each in (expr.args[0], expr)]
    return widths[0] < widths[1]


def _dtype(expr: relax.Expr) -> str:
    return str(expr.ty.dtype)


@dataclass
class _Kernel:
    """Parameters of a group's function, and the arguments of its call."""

    params: list[relax.Var] = field(default_factory=list)
    arguments: list[relax.Expr] = field(default_factory=list)

    def param(self, value: relax.Expr, ty: Any) -> relax.Var:
        """Parameter for a value, shared by all its uses."""
        for known, var in zip(self.arguments, self.params):
            if known.same_as(value):
                return var
        self.params.append(relax.Var(f"p{len(self.params)}", ty))
        self.arguments.append(value)
        return self.params[-1]


class _Fusion:
    def __init__(self, body: relax.Expr, level: int, max_size: int) -> None:
        self.order = list(post_order(body))
        self.body = body
        self.places = {handle(node): place for place, node in enumerate(self.order)}
        self.groups = partition(self._graph(), level, max_size)
        self.kernels: dict[int, _Kernel] = {}
        self.made: dict[int, relax.Expr] = {}
        self.linked = bool(setting("relay.FuseOps.link_params", False))

    def run(self) -> relax.Expr:
        """Rewrite the body as calls of the groups' functions."""
        for node in self.order:
            self.made[handle(node)] = self._rewritten(node)
        return self.made[handle(self.body)]

    def _graph(self) -> list[Node]:
        nodes = [Node(index=place) for place in range(len(self.order))]
        nodes[self.places[handle(self.body)]].outside = True
        for place, expr in enumerate(self.order):
            node = nodes[place]
            node.pattern = pattern_of(expr)
            if isinstance(expr, relax.Var):
                node.outside = True
            for each in operands(expr):
                below = nodes[self.places[handle(each)]]
                edge = _edge(expr, each, node.pattern)
                if edge is None:
                    below.outside = True
                else:
                    below.outputs.append((node, edge))
        return nodes

    def _group(self, node: relax.Expr) -> Group:
        return self.groups[self.places[handle(node)]].find()

    def _is_root(self, node: relax.Expr) -> bool:
        return self._group(node).root == self.places[handle(node)]

    def _rewritten(self, node: relax.Expr) -> relax.Expr:
        below = [self.made[handle(each)] for each in operands(node)]
        if isinstance(node, relax.Tuple):
            return with_operands(node, below if self._is_root(node) else self._inside(node))
        if isinstance(node, relax.TupleGetItem):
            return self._field(node, below)
        if not dialect.is_relay(node) or dialect.relay_name(node) in _MARKS:
            made = with_operands(node, below)
            if isinstance(node, relax.Call) and isinstance(node.op, relax.Function):
                made = make_call(node.op, below, node.ty)
            return made
        if dialect.relay_name(node) == _STOP:
            return below[0]
        call = with_operands(node, self._inside(node))
        return self._called(node, call) if self._is_root(node) else call

    def _field(self, node: relax.TupleGetItem, below: list[relax.Expr]) -> relax.Expr:
        whole = self._inside(node)[0] if not self._is_root(node) else None
        if whole is not None:
            return infer_type(relax.TupleGetItem(whole, node.index))
        if self._group(node.tuple_value) is not self._group(node):
            return with_operands(node, below)
        inner = self._inside(node)[0]
        return self._called(node, infer_type(relax.TupleGetItem(inner, node.index)))

    def _inside(self, node: relax.Expr) -> list[relax.Expr]:
        """Operands inside the group's function: nodes of the group, and parameters."""
        group = self._group(node)
        made = []
        for each in operands(node):
            value = self.made[handle(each)]
            is_linked = self.linked and isinstance(value, tvm.ir.GenericConst)
            if self._group(each) is group or is_linked:
                made.append(value)
            else:
                kernel = self.kernels.setdefault(id(group), _Kernel())
                made.append(kernel.param(value, each.ty))
        return made

    def _called(self, node: relax.Expr, body: relax.Expr) -> relax.Expr:
        """Call the function that computes a group."""
        kernel = self.kernels.get(id(self._group(node)), _Kernel())
        calls = [each for each in post_order(body) if isinstance(each, relax.Call)]
        attrs = {"Primitive": tvm.tirx.IntImm("int32", int(bool(calls)))}
        of_tensors = all(isinstance(var.ty, relax.TensorType) for var in kernel.params)
        records = [registry.lookup(dialect.relay_name(each)) for each in calls]
        if of_tensors and records and all(each.keeps_order for each in records):
            attrs["relay.reshape_only"] = tvm.tirx.IntImm("int32", 1)
        return make_call(local_function(kernel.params, body, attrs), kernel.arguments, node.ty)


def pattern_of(expr: relax.Expr) -> int:
    """Fusion pattern of a node."""
    if isinstance(expr, tvm.ir.GenericConst):
        simple = str(expr.ty.dtype) in ("int32", "int64", "float32", "float64", "bool")
        return ELEMENTWISE if expr.ty.ndim == 0 and simple else OPAQUE
    if isinstance(expr, relax.Tuple):
        return TUPLE
    if isinstance(expr, relax.TupleGetItem):
        return INJECTIVE if _of_tensors(expr.tuple_value.ty) else OPAQUE
    if not dialect.is_relay(expr):
        return OPAQUE
    name = dialect.relay_name(expr)
    if name.startswith("dyn.") and any(shape_of_type(each) is None for each in leaf_types(expr.ty)):
        return OPAQUE  # value-dependent result shape
    return int(expr.op.get_attr("TOpPattern"))


def _edge(expr: relax.Expr, operand: relax.Expr, pattern: int) -> int | None:
    """Fusion pattern of an edge from operand to consumer; None if it cannot be fused."""
    if isinstance(expr, relax.Tuple):
        return INJECTIVE if isinstance(operand.ty, relax.TensorType) else None
    if isinstance(expr, relax.TupleGetItem):
        return INJECTIVE if _of_tensors(operand.ty) else None
    if not dialect.is_relay(expr):
        return OPAQUE if isinstance(expr, relax.Call) else None
    if pattern == BROADCAST and _same_shape(expr.ty, operand.ty):
        return ELEMENTWISE
    return pattern


def _of_tensors(ty: Any) -> bool:
    fields: Sequence[Any] = ty.fields if isinstance(ty, relax.TupleType) else []
    return all(isinstance(each, relax.TensorType) for each in fields)


def _same_shape(left: Any, right: Any) -> bool:
    if not isinstance(left, relax.TensorType) or not isinstance(right, relax.TensorType):
        return False
    if left.shape is None or right.shape is None:
        return False
    return bool(tvm_ffi.structural_equal(left.shape, right.shape))
