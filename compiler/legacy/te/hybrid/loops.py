"""The loops of a hybrid function as its stage schedules them.

    for i in range(n):                    for i.outer in range(ceil(n / 4)):
        for j in range(m):        ->        for j in range(m):
            c[i, j] = ...                     for i.inner in range(4):
                                                if i.outer * 4 + i.inner < n:
                                                  c[i.outer * 4 + i.inner, j] = ...

Loops that lie directly in one another are a nest, which splits, fusions and reorderings rewrite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import tirx

from schedules.tir_visit import nodes_of

from ....errors import ScheduleError
from ..dataflow import loops_of, substitute
from ..relations import position, roots_of
from ..stage import Stage

if TYPE_CHECKING:
    from ..statements import Statements


def scheduled(statements: Statements, stage: Stage, body: Any) -> Any:
    """The statement of a hybrid stage, with its loops split, fused, reordered and marked.

    Raises ScheduleError: loops that do not lie directly in one another are fused, or one that
    another's length depends on was moved into it.
    """
    return _Rewriter(statements, stage).visit(body)


class _Rewriter:
    def __init__(self, statements: Statements, stage: Stage) -> None:
        self.statements, self.stage = statements, stage
        self.loops = {axis.var: axis for axis in loops_of(stage.op)}
        self.roots = roots_of(stage.relations, stage.axes)
        self._made: set[Any] = set()

    def visit(self, statement: Any) -> Any:
        """A statement with the loops in it rewritten."""
        if isinstance(statement, tirx.For):
            return self._nest(statement)
        if isinstance(statement, tirx.SeqStmt):
            return tirx.SeqStmt([self.visit(each) for each in statement.seq])
        if isinstance(statement, tirx.IfThenElse):
            otherwise = statement.else_case
            return tirx.IfThenElse(
                statement.condition,
                self.visit(statement.then_case),
                None if otherwise is None else self.visit(otherwise),
            )
        if isinstance(statement, tirx.AttrStmt):
            body = self.visit(statement.body)
            return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
        return statement

    def _nest(self, outermost: Any) -> Any:
        axes = []
        body = outermost
        while isinstance(body, tirx.For):
            axes.append(self.loops[body.loop_var])
            body = body.body
        values = self.statements.bounds.axis_values(self.stage)
        body = self.visit(body)
        body = substitute(body, {axis.var: values[axis.var] for axis in axes})
        for _, condition in reversed(self.statements.bounds.conditions(self.stage, axes)):
            body = tirx.IfThenElse(tirx.likely(condition), body, None)
        leaves = [leaf for leaf in self.stage.leaf_iter_vars if self._is_of(leaf, axes)]
        self._check(leaves)
        return self.statements.nest(self.stage, leaves, body)

    def _is_of(self, leaf: Any, axes: list[Any]) -> bool:
        """Whether a loop is made of these axes alone; a loop of extent 1 goes to the first nest."""
        roots = self.roots[leaf.var]
        inside = [root for root in roots if position(axes, root) is not None]
        if inside and len(inside) < len(roots):
            raise ScheduleError(
                f"fuse of stage {self.stage.name}: {roots[0].var.name} and {roots[-1].var.name} "
                "do not lie directly in one another"
            )
        is_first = leaf.var not in self._made
        if is_first and (inside or not roots):
            self._made.add(leaf.var)
            return True
        return False

    def _check(self, leaves: list[Any]) -> None:
        """No loop's length may depend on a loop inside of it."""
        bounds = self.statements.bounds
        values = bounds.axis_values(self.stage)
        for index, leaf in enumerate(leaves):
            extent = substitute(bounds.extents[leaf.var], values)
            used = list(nodes_of(extent, tirx.Var))
            inner = [each for each in leaves[index:] if any(each.var.same_as(u) for u in used)]
            if inner:
                raise ScheduleError(
                    f"reorder of stage {self.stage.name}: the length of {leaf.var.name} depends "
                    f"on {inner[0].var.name}, which has to stay around it"
                )
