"""Change the layouts of some operators and propagate them to the surrounding operators.

Every value has an original and a current layout. A converted operator requests its operands in its
new layout. A layout-agnostic operator adopts the layout of its operands, by its rule in
`op/layout_rules.py`. Otherwise values are converted back to their original layout. A value is
converted to another layout at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...errors import RelayError, RelayTypeError
from .. import dialect
from ..expr import as_expr
from ..nested_expressions import handle, make_call, operands, post_order, with_operands
from ..op import registry
from ..op.layout_query import Answer, Query
from ..op.layout_string import Layout
from ..type_infer import infer_type
from .build import op, tuple_of

Change = Callable[[relax.Call, dict[str, Any], list[relax.Expr]], Any]
"""Called with the original call, its attributes and current operands; returns a call or None."""


@dataclass(frozen=True)
class Value:
    """Current form of a value; both layouts are None if unknown."""

    now: relax.Expr
    before_layout: Layout | None = None
    layout: Layout | None = None


Made = Value | list["Made"]
"""Value, or fields of a tuple."""


class LayoutRewrite:
    """One rewrite of a body.

    `change`: callback that converts an operator to another layout. `changed_without_rule`: also
    call it for operators without a layout rule.
    """

    def __init__(self, change: Change, changed_without_rule: bool = False) -> None:
        self.change = change
        self.changed_without_rule = changed_without_rule
        self.made: dict[int, Made] = {}
        self.converted: dict[tuple[int, Layout, Layout], tuple[relax.Expr, relax.Expr]] = {}

    def run(self, body: relax.Expr) -> relax.Expr:
        """Rewrite the body; the result has its original layout."""
        for node in post_order(body):
            self.made[handle(node)] = self._visit(node)
        return self._restored(self.made[handle(body)])

    def _visit(self, node: relax.Expr) -> Made:
        if isinstance(node, relax.Tuple):
            return [self.made[handle(field)] for field in node.fields]
        if isinstance(node, relax.TupleGetItem):
            whole = self.made[handle(node.tuple_value)]
            if isinstance(whole, list):
                return whole[int(node.index)]
        elif dialect.is_relay(node):
            made = self._call(node)
            if made is not None:
                return made
        below = [self._restored(self.made[handle(each)]) for each in operands(node)]
        made_node = with_operands(node, below)
        if isinstance(node, relax.Call) and isinstance(node.op, relax.Function):
            made_node = make_call(node.op, below, node.ty)
        return Value(made_node)

    def _call(self, node: relax.Call) -> Made | None:
        inputs: list[Value] = []
        args: list[relax.Expr] = []
        for each in node.args:
            made = self.made[handle(each)]
            if isinstance(made, list):
                if any(isinstance(field, list) for field in made):
                    return None
                fields = [field for field in made if isinstance(field, Value)]
                inputs += fields
                args.append(tuple_of([field.now for field in fields]))
            elif isinstance(made.now.ty, relax.TupleType):
                return None
            else:
                inputs.append(made)
                args.append(made.now)
        attrs = dialect.attributes(node)
        rule = registry.lookup(dialect.relay_name(node)).layout
        if rule is None:
            if not self.changed_without_rule:
                return None
            changed = self._changed(
                node, attrs, [self._restored(self.made[handle(a)]) for a in node.args]
            )
            return None if changed is None else Value(infer_type(changed))
        types = [arg.ty for arg in node.args]
        before = [each.before_layout for each in inputs]
        found = _complete(rule(Query(attrs, before, None, types)))
        if found is None:
            return None
        call = self._changed(node, found.attrs, args)
        name, own, given = dialect.relay_name(node), found.attrs, args
        if call is not None:
            name, own, given = dialect.relay_name(call), dialect.attributes(call), list(call.args)
        seen = [each for each in found.inputs if each is not None]
        old = [layout if each is None else each for each, layout in zip(before, seen)]
        new = [layout if each.layout is None else each.layout for each, layout in zip(inputs, seen)]
        rule = registry.lookup(name).layout
        if rule is None:
            return None
        wanted = _complete(rule(Query(own, old, new, types)))
        if wanted is None or len(wanted.inputs) != len(inputs):
            return None
        made_call = self._with_layouts(name, given, inputs, found, wanted)
        return self._results(made_call, found, wanted)

    def _changed(self, node: relax.Call, attrs: dict[str, Any], args: list[relax.Expr]) -> Any:
        """Result of the callback for a call: a call, or None."""
        with dialect.types_deferred():
            made = as_expr(self.change(node, attrs, args))
        if made is not None and not dialect.is_relay(made):
            raise RelayError(
                f"the replacement of {dialect.relay_name(node)} in another layout must be an "
                f"operator call, not {made}"
            )
        return made

    def _with_layouts(
        self,
        name: str,
        args: Sequence[relax.Expr],
        inputs: Sequence[Value],
        found: Answer,
        wanted: Answer,
    ) -> relax.Call:
        """Rebuild the call over operands in the layouts that it requires."""
        place = 0
        made: list[relax.Expr] = []
        for arg in args:
            fields = list(arg.fields) if isinstance(arg, relax.Tuple) else [arg]
            laid = [
                self._laid(
                    field, inputs[place + i], found.inputs[place + i], wanted.inputs[place + i]
                )
                for i, field in enumerate(fields)
            ]
            place += len(fields)
            made.append(tuple_of(laid) if isinstance(arg, relax.Tuple) else laid[0])
        return dialect.call(name, made, wanted.attrs)

    def _laid(
        self, value: relax.Expr, given: Value, old: Layout | None, new: Layout | None
    ) -> relax.Expr:
        """Convert an operand from the layout `old` expected by the operator to `new`."""
        if given.before_layout == old:
            return self._converted(value, given.layout, new)
        if given.before_layout is not None:
            value = self._converted(value, given.layout, given.before_layout)
        return self._converted(value, old, new)

    def _results(self, call: relax.Call, found: Answer, wanted: Answer) -> Made:
        pairs = list(zip(found.outputs, wanted.outputs))
        if not isinstance(call.ty, relax.TupleType):
            return Value(call, *pairs[0])
        pairs += pairs[-1:] * (len(call.ty.fields) - len(pairs))  # dropout's mask: layout of data
        return [
            Value(infer_type(relax.TupleGetItem(call, index)), *pair)
            for index, pair in enumerate(pairs)
        ]

    def _restored(self, made: Made) -> relax.Expr:
        """Convert a value back to its original layout."""
        if isinstance(made, list):
            fields = [self._restored(each) for each in made]
            return tuple_of(fields)
        return self._converted(made.now, made.layout, made.before_layout)

    def _converted(
        self, value: relax.Expr, source: Layout | None, target: Layout | None
    ) -> relax.Expr:
        if source == target or source is None or target is None:
            return value
        key = (handle(value), source, target)
        if key not in self.converted:
            self.converted[key] = (value, _transformed(value, source, target))
        return self.converted[key][1]


def _complete(answer: Answer | None) -> Answer | None:
    """Return layouts if all of them are known; None otherwise."""
    if answer is None or any(each is None for each in (*answer.inputs, *answer.outputs)):
        return None
    return answer


def _transformed(value: relax.Expr, source: Layout, target: Layout) -> relax.Expr:
    """Transform a value to another layout; missing leading axes are added, scalars stay."""
    value = infer_type(value)
    missing = target.rank - source.rank
    if missing > 0:
        if value.ty.ndim == 0:
            return value
        source = source.widened(target)
        value = op("expand_dims", value, axis=0, num_newaxis=missing)
    if source == target:
        return value
    if not source.same_axes(target):
        raise RelayTypeError(f"a value of the layout {source} can't be brought to {target}")
    return op("layout_transform", value, src_layout=str(source), dst_layout=str(target))
