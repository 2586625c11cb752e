"""Insert run-time checks that operand extents cover the indices a kernel uses unconditionally.

    theta : (n, m, 3)                         if n > 0 and m < 2: raise InputError
    for i in n, k in 2:            ->         for i in n, k in 2:
      y[i, k] = theta[i, k, 0]                  y[i, k] = theta[i, k, 0]

An index that is a constant or a loop counter reaches its largest value for any data. If the axis
is not known to be larger than that, the kernel compares them before it computes anything. Indices
that are computed or read from tensors are checked by `check_indices`. GPU kernels can't raise
errors, so they are not checked.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, sym, tirx
from tvm.ir import Call, Op, TensorLoad
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import Target

from schedules.tir_visit import nodes_of

from ...ir.rewrite import with_functions
from .kernel_error import give_up, set_error

KIND = "InputError"
"""Name of the error that kernels raise, as `compiler.runtime.executor` registers it."""

_IF = "prim.if_then_else"


def check_bounds(mod: tvm.IRModule, target: Target) -> tvm.IRModule:
    changed = {}
    for gvar, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc):
            own = func.attrs.get("target") if func.attrs else None
            is_on_cpu = Target(own or target).kind.name == "llvm"
            needs = _Needs(func).found if is_on_cpu else []
            if needs:
                changed[gvar] = _checked(func, gvar.name_hint, needs)
    return with_functions(mod, changed) if changed else mod


class _Needs:
    """Lower bounds on extents, from indices used; each in `found` holds if its loops run."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        self.found: list[tuple[Any, int, Any, list[Any]]] = []
        self.analyzer = sym.Analyzer()
        self.ends: dict[Any, Any] = {}  # exclusive upper bounds of loop counters
        self.conditions: list[Any] = []
        self.parameters = [p for p in func.params if isinstance(p.ty, tirx.BufferType)]
        known = {var for each in self.parameters for extent in each.shape for var in _vars(extent)}
        known.update(param for param in func.params if not isinstance(param.ty, tirx.BufferType))
        self.known = known
        self._visit(func.body)

    def _visit(self, node: Any) -> None:
        if isinstance(node, s_tir.SBlockRealize):  # the predicate only restricts the domain
            self._block(node.block)
        elif isinstance(node, tirx.For):
            self._loop(node)
        elif isinstance(node, tirx.SeqStmt):
            for each in node.seq:
                self._visit(each)
        elif isinstance(node, tirx.BufferStore):
            self._access(node.buffer, node.indices)
            for each in (*node.indices, node.value):
                self._loads(each)
        elif isinstance(node, tirx.Evaluate):
            self._loads(node.value)

    def _block(self, block: Any) -> None:
        self._in([(iv.var, iv.dom.min, iv.dom.extent) for iv in block.iter_vars], block.body)

    def _loop(self, loop: Any) -> None:
        self._in([(loop.loop_var, loop.min, loop.extent)], loop.body)

    def _in(self, ranges: list[tuple[Any, Any, Any]], body: Any) -> None:
        """Visit a body in which variables have these ranges."""
        before = len(self.conditions)
        for var, start, extent in ranges:
            if isinstance(start, tirx.IntImm) and int(start) == 0 and self._is_known(extent):
                self.ends[var] = extent
            if not isinstance(extent, tirx.IntImm):
                self.conditions.append(extent)
        static = [extent for _, _, extent in ranges if isinstance(extent, tirx.IntImm)]
        if all(int(extent) > 0 for extent in static):
            self._visit(body)
        del self.conditions[before:]

    def _is_known(self, extent: Any) -> bool:
        """Whether an extent follows from those of the parameters."""
        return all(var in self.known for var in _vars(extent))

    def _loads(self, value: Any) -> None:
        """Record the loads that a value performs unconditionally."""
        if isinstance(value, TensorLoad):
            self._access(value.source, value.indices)
            for each in value.indices:
                self._loads(each)
        elif isinstance(value, Call):
            is_choice = isinstance(value.op, Op) and value.op.name == _IF
            for each in value.args[:1] if is_choice else value.args:
                self._loads(each)
        elif isinstance(value, tirx.Cast):
            self._loads(value.value)
        else:
            for part in ("a", "b", "condition", "true_value", "false_value"):
                if isinstance(getattr(value, part, None), tvm.ir.Expr):
                    self._loads(getattr(value, part))

    def _access(self, buffer: Any, indices: Any) -> None:
        if not any(buffer.same_as(each) for each in self.parameters):
            return
        if not all(self._is_known(each) for each in self.conditions):
            return
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape)):
            least = self._least(index)
            if least is None or least.same_as(extent):
                continue
            if isinstance(least, tirx.IntImm) and isinstance(extent, tirx.IntImm):
                if int(least) <= int(extent):
                    continue
            elif self.analyzer.can_prove_equal(least, extent):
                continue
            self._add(buffer, axis, least)

    def _add(self, buffer: Any, axis: int, least: Any) -> None:
        """Record a need; of several constants under the same loops only the largest is kept."""
        for i, (other, at, size, conditions) in enumerate(self.found):
            if not (buffer.same_as(other) and axis == at and self.conditions == conditions):
                continue
            if isinstance(least, tirx.IntImm) and isinstance(size, tirx.IntImm):
                self.found[i] = (other, at, max(least, size, key=int), conditions)
                return
            if self.analyzer.can_prove_equal(least, size):
                return
        self.found.append((buffer, axis, least, list(self.conditions)))

    def _least(self, index: Any) -> Any | None:
        """The number of elements that an axis must have for an index; None if unknown."""
        if isinstance(index, tirx.IntImm):
            return tirx.const(int(index) + 1, "int64") if int(index) >= 0 else None
        return self.ends.get(index) if isinstance(index, tirx.Var) else None


def _vars(extent: Any) -> list[Any]:
    return [] if isinstance(extent, (int, tirx.IntImm)) else nodes_of(extent, tirx.Var)


def _checked(func: tirx.PrimFunc, name: str, needs: list[Any]) -> tirx.PrimFunc:
    with IRBuilder() as builder:
        with T.seq_scope():
            is_wrong: Any = tirx.const(False, "bool")
            for buffer, axis, least, conditions in needs:
                short = buffer.shape[axis] < least
                for each in conditions:
                    short = tirx.And(short, each > 0)
                is_wrong = tirx.Or(is_wrong, short)
            with T.If(is_wrong), T.Then():
                set_error(KIND, [_message(name, needs)])
                give_up()
        check = builder.get()
    return func.with_body(_behind(check, func.body))


def _behind(check: Any, body: Any) -> Any:
    """Insert a check before a statement, inside the root block, which TVM keeps outermost."""
    if not isinstance(body, s_tir.SBlockRealize):
        return tirx.SeqStmt([check, body])
    root = body.block
    block = s_tir.SBlock(
        *(root.iter_vars, root.reads, root.writes, root.name_hint),
        *(tirx.SeqStmt([check, root.body]), root.init, root.alloc_buffers),
        *(root.match_buffers, root.annotations, root.span),
    )
    return s_tir.SBlockRealize(body.iter_values, body.predicate, block, body.span)


def _message(name: str, needs: list[Any]) -> str:
    wanted = ", ".join(
        f"axis {axis} of {buffer.name} ({plain(buffer.shape[axis])}) must have at least "
        f"{plain(least)} elements"
        for buffer, axis, least, _ in needs
    )
    return f"{name}: extents of operands do not fit: {wanted}"


def plain(extent: Any) -> str:
    return str(int(extent)) if isinstance(extent, (int, tirx.IntImm)) else str(extent)
