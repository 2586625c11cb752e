"""Relay's pattern tables as partitioners: `partition(mod, "dnnl")`, `explain(mod, "tensorrt")`.

The passes of `relay.op.contrib.partition_for_<name>` that come before its table run first. Then the
table's rows and the single operators of the library mark nodes, as MergeComposite and
AnnotateTarget do; limits, regions, reports and explanations are those of every partitioner. The
build compiles the subgraphs itself, unless a back end of the same name is registered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import IRModule, relax
from tvm.ir import Op

from compiler.backends import Partitioner, Strategy, Unsupported, get_partitioner, registered
from compiler.backends.reasons import UNSELECTED
from compiler.backends.registry import Mark
from compiler.ir.rewrite import expressions_in
from compiler.ir.spans import source_name, span_of, with_span
from compiler.relay.nested_expressions import nested_scope, post_order
from compiler.relay.op import contrib
from compiler.relay.op.contrib.register import LIBRARIES, get_pattern_table
from compiler.relay.op.contrib.tables import merges_regions, without_steps
from compiler.relay.transform.byoc import supports
from compiler.relay.type_infer import type_of

from .region_growing import ANY, UNMARKED

_STRATEGY = "pattern table"


def chain_of(names: Sequence[str]) -> list[Partitioner]:
    """Partitioners by name; a pattern table where none is registered under its name.

    Raises UnknownBackendError: there is neither.
    """
    return [_of_table(name) if is_table(name) else get_partitioner(name) for name in names]


def is_table(name: str) -> bool:
    """Whether a name refers to a Relay pattern table."""
    return name in LIBRARIES and name not in registered()


def prepared(mod: IRModule, params: Mapping[str, Any] | None, name: str) -> IRModule:
    """Run the passes of `partition_for_<name>` that come before its table; weights are bound."""
    with without_steps():
        made = getattr(contrib, f"partition_for_{name}")(mod, params)
    return made[0] if isinstance(made, tuple) else made


def _of_table(name: str) -> Partitioner:
    def marks(function: relax.Function, _options: Any) -> list[Mark]:
        return table_marks(name, function)

    return Partitioner(name, (Strategy(_STRATEGY, function_marks=marks),), options=())


def table_marks(compiler: str, function: relax.Function) -> list[Mark]:
    """The mark of each binding of a function, or the reason why the library leaves it."""
    count = 0

    def numbered(block: relax.BindingBlock) -> relax.BindingBlock:
        nonlocal count
        bindings: list[relax.Binding] = []
        for binding in block.bindings:
            if isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.Call):
                value = with_span(binding.value, span_of(str(count)))
                binding = relax.VarBinding(binding.var, value)
            bindings.append(binding)
            count += 1
        return type(block)(bindings)

    body = relax.SeqExpr([numbered(each) for each in function.body.blocks], function.body.body)
    whole = relax.Function(function.params, body, function.ret_ty, attrs=function.attrs)
    found = _Matches(compiler)
    found.add(nested_scope(whole))
    return [found.marks.get(str(number), UNMARKED) for number in range(count)]


class _Matches:
    """Marks by number of the binding, which is the name in its span."""

    def __init__(self, compiler: str) -> None:
        self.marks: dict[str, Mark] = {}
        self._compiler = compiler
        self._objections: dict[str, Unsupported] = {}
        self._composites = 0

    def add(self, body: relax.Expr) -> None:
        """Match the rows, then ask for each operator that none took."""
        for name, pattern, *checks in get_pattern_table(self._compiler) or ():
            check = self._noting(name, checks[0]) if checks else lambda _: True
            body = pattern.partition(body, {"Composite": name}, check)
        merged = merges_regions(self._compiler)
        for node in post_order(body):
            if not isinstance(node, relax.Call):
                continue
            if isinstance(node.op, relax.Function):
                taken = {source_name(each) for each in expressions_in(node.op, relax.Call)} - {""}
                self.marks |= dict.fromkeys(taken, ANY if merged else self._next())
            elif isinstance(node.op, Op):
                answer = self._answer(node)
                number = ANY if merged else self._next()
                self.marks.setdefault(
                    source_name(node), answer if isinstance(answer, Unsupported) else number
                )

    def _next(self) -> int:
        self._composites += 1
        return self._composites - 1

    def _noting(self, name: str, check: Any) -> Any:
        def noted(root: Any) -> bool:
            answer = check(root)
            if not answer:
                is_reason = isinstance(answer, Unsupported)
                reason = str(answer) if is_reason else f"its check says no{_described(root)}"
                self._objections[source_name(root)] = Unsupported(f"pattern {name}: {reason}")
            return bool(answer)

        return noted

    def _answer(self, call: relax.Call) -> Unsupported | None:
        """Why an operator on its own is left; None if the library takes it."""
        answer = supports(self._compiler, call)
        if answer:
            return None
        known = self._objections.get(source_name(call))
        if isinstance(answer, Unsupported):
            return answer
        name = str(call.op.name).removeprefix("relay.").removeprefix("relax.")
        if answer is None:
            text = f"{self._compiler} has neither a pattern here nor a check of {name} alone"
            return Unsupported(text, UNSELECTED) if known is None else known
        text = f"the check of {name} says no{_described(call)}"
        return Unsupported(text) if known is None else known


def _described(expr: relax.Expr) -> str:
    """Types of the operands and attributes of a call, which a check without a reason looked at."""
    if not isinstance(expr, relax.Call):
        return ""
    attrs = {str(key): value for key, value in expr.attrs.items()} if expr.attrs else {}
    parts = [type_of(each) for each in expr.args if isinstance(each, relax.Expr)]
    parts += [f"{key}={value}" for key, value in attrs.items()]
    return f": {', '.join(parts)}" if parts else ""
