"""Partition matches into functions, and rewrite matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tvm
import tvm_ffi
from tvm import relax

from ...errors import RelayError
from ...support.depth_first import depth_first
from .. import dialect
from ..expr import as_expr
from ..function import OpenFunction
from ..nested_expressions import (
    handle,
    local_function,
    make_call,
    nested,
    operands,
    post_order,
    with_operands,
)
from ..relay_to_relax import function_of
from ..type_infer import infer_type_if_possible
from .matching import Matches, match

if TYPE_CHECKING:
    from .patterns import DFPattern

FROM_PATTERN = "PartitionedFromPattern"
_MAX_SWEEPS = 200


class DFPatternCallback:
    """Base class of rewrites: set `pattern` and define `callback` in a subclass.

    Parameters
    ----------
    require_type : bool
        Accepted: expressions are always typed.
    rewrite_once : bool
        Rewrite once instead of until a fixed point.
    """

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern: Any = None
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: Any) -> Any:
        """Call `rewrite` with only this callback."""
        return rewrite(self, expr)

    def callback(self, pre: Any, post: Any, node_map: Matches) -> Any:
        """Return the replacement of a match.

        Parameters
        ----------
        pre, post : relax.Expr
            Root of the match, before and after its operands were rewritten.
        node_map : dict of pattern to list of expression
            Matched expressions of each sub-pattern, rewritten.
        """
        raise NotImplementedError("a callback is to be defined")


def rewrite(callbacks: Any, expr: Any, mod: Any = None) -> Any:
    """Apply callbacks in order to a fixed point, with bindings; RelayError if there is none."""
    del mod
    chosen = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    if isinstance(expr, (relax.Function, relax.SeqExpr)):
        return _within(expr, lambda inner: rewrite(chosen, inner))
    for sweep in range(_MAX_SWEEPS):
        changed = False
        for callback in chosen:
            if sweep and callback.rewrite_once:
                continue
            new = _sweep(callback, expr)
            if not new.same_as(expr) and not tvm_ffi.structural_equal(new, expr, True):
                expr, changed = new, True
        if not changed:
            return expr
    raise RelayError(f"a rewrite still changes the expression after {_MAX_SWEEPS} sweeps")


def partition(
    pattern: DFPattern,
    expr: Any,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Any], bool] = lambda _: True,
) -> Any:
    """Partition an expression; see `DFPattern.partition`."""
    if isinstance(expr, (relax.Function, relax.SeqExpr)):
        return _within(expr, lambda inner: partition(pattern, inner, attrs, check))

    def replace(group: _Group, new_inputs: list[relax.Expr], new: relax.Expr) -> relax.Expr:
        if not check(group.root):
            return new
        held = {FROM_PATTERN: group.name, **dict(attrs or {})}
        function = local_function(group.parameters, group.body, held)
        if group.root.ty.is_missing():
            return infer_type_if_possible(relax.Call(function, new_inputs))
        return make_call(function, new_inputs, group.root.ty)

    return _replaced(expr, _groups(pattern, expr), replace)


def _within(expr: Any, change: Callable[[relax.Expr], relax.Expr]) -> Any:
    """Transform the result of a function or sequence; return it unchanged if nothing changes."""
    before = nested(expr) if isinstance(expr, relax.Function) else as_expr(expr)
    after = change(before)
    if after.same_as(before):
        return expr
    is_function = isinstance(expr, relax.Function)
    return function_of(expr.params, after, expr.attrs) if is_function else after


@dataclass(eq=False)
class _Group:
    """One match."""

    root: relax.Expr
    matches: Matches
    inputs: list[relax.Expr] = field(default_factory=list)  # expressions that enter the match
    # variables that replace them in `body`
    parameters: list[relax.Var] = field(default_factory=list)
    nodes: dict[int, relax.Expr] = field(default_factory=dict)  # matched nodes by handle
    body: Any = None
    name: str = ""


def _sweep(callback: DFPatternCallback, expr: relax.Expr) -> relax.Expr:
    made: dict[int, relax.Expr] = {}

    def replace(group: _Group, _inputs: list[relax.Expr], new: relax.Expr) -> relax.Expr:
        renewed = {
            pattern: [made.get(handle(each), each) for each in found]
            for pattern, found in group.matches.items()
        }
        renewed[callback.pattern] = [new]
        return callback.callback(group.root, new, renewed)

    return _replaced(expr, _groups(callback.pattern, expr), replace, made)


def _replaced(
    expr: relax.Expr,
    groups: Sequence[_Group],
    replace: Callable[[_Group, list[relax.Expr], relax.Expr], relax.Expr],
    made: dict[int, relax.Expr] | None = None,
) -> relax.Expr:
    """Replace the root of each group, operands first."""
    if not groups:
        return expr
    made = {} if made is None else made
    roots = {handle(group.root): group for group in groups}
    for node in post_order(expr):
        new = with_operands(node, [made[handle(each)] for each in operands(node)])
        group = roots.get(handle(node))
        if group is not None:
            inputs = [made.get(handle(each), each) for each in group.inputs]
            new = replace(group, inputs, new)
        made[handle(node)] = new
    return made[handle(expr)]


def _groups(pattern: DFPattern, expr: relax.Expr) -> list[_Group]:
    """Non-overlapping matches without external uses of inner values, the last root first."""
    nodes = list(post_order(expr))
    readers: dict[int, list[relax.Expr]] = {}
    for node in nodes:
        for below in operands(node):
            readers.setdefault(handle(below), []).append(node)
    taken: set[int] = set()
    groups: list[_Group] = []
    for node in reversed(nodes):
        if handle(node) in taken:
            continue
        found = match(pattern, node)
        if found is None:
            continue
        group = _extract(pattern, node, found)
        if _is_closed(group, readers, taken):
            taken.update(group.nodes)
            groups.append(group)
    return groups


def _is_closed(group: _Group, readers: Mapping[int, list[relax.Expr]], taken: set[int]) -> bool:
    for key, node in group.nodes.items():
        if key in taken:
            return False
        if not node.same_as(group.root) and any(
            handle(reader) not in group.nodes for reader in readers.get(key, [])
        ):
            return False
    return True


def _extract(pattern: DFPattern, root: relax.Expr, matches: Matches) -> _Group:
    group = _Group(root, matches)
    inputs: dict[int, relax.Var] = {}
    fuzzy = {
        handle(each)
        for part in _parts(pattern)
        for inner in part.repeated()
        for each in matches.get(inner, [])
    }
    for part in _parts(pattern):
        for each in part.entering(matches.get(part, [])):
            key = handle(each)
            if key in inputs or key in fuzzy or isinstance(each, (tvm.ir.Op, relax.Function)):
                continue
            if isinstance(each, tvm.ir.GenericConst) and part.embeds:
                continue
            ty = None if each.ty.is_missing() else each.ty
            inputs[key] = relax.Var(f"FunctionVar_0_{len(inputs)}", ty)
            group.inputs.append(each)
            group.parameters.append(inputs[key])
    _rebuild(group, inputs)
    return group


def _parts(pattern: DFPattern) -> list[DFPattern]:
    """All sub-patterns outside of function patterns, operands first, without duplicates."""
    return list(depth_first([pattern], lambda part: () if part.is_scope else part.parts()))


def _rebuild(group: _Group, inputs: Mapping[int, relax.Var]) -> None:
    """Build the group's body over its parameters, its nodes and its name."""
    made: dict[int, relax.Expr] = {}
    names: list[str] = []
    for node in post_order(
        group.root, lambda each: [] if handle(each) in inputs else operands(each)
    ):
        key = handle(node)
        if key in inputs:
            made[key] = inputs[key]
        elif not operands(node) and not isinstance(node, relax.Call):
            made[key] = node
        else:
            made[key] = with_operands(node, [made[handle(each)] for each in operands(node)])
            group.nodes[key] = node
            names.append(_name(node))
    group.body = made[handle(group.root)]
    group.name = "".join(f"{name}_" for name in names)


def _names_in(function: Any) -> str:
    """Names of the operators in a local function, each followed by an underscore."""
    if not isinstance(function, (relax.Function, OpenFunction)):
        return ""
    body = nested(function) if isinstance(function, relax.Function) else function.body
    return "".join(f"{_name(each)}_" for each in post_order(body) if operands(each))


def _name(node: relax.Expr) -> str:
    if isinstance(node, relax.Call):
        return dialect.relay_name(node) or f"{_names_in(node.op)}FunctionCall"
    if isinstance(node, relax.TupleGetItem):
        return f"TupleGetItem{int(node.index)}"
    return type(node).__name__
