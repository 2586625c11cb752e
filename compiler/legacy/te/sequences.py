"""Statements made of statements, and the results of reducers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from .dataflow import substitute


def combine(combiner: Any, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """The reducer's results for two groups of values."""
    values = dict(zip([*combiner.lhs, *combiner.rhs], [*left, *right]))
    return [substitute(result, values) for result in combiner.result]


def store_all(results: Sequence[Any], store: Any) -> Any:
    """Store several results, of which none may change before all are computed."""
    if len(results) == 1:
        return store(0, results[0])
    names = [tirx.Var(f"result{i}", str(value.ty.dtype)) for i, value in enumerate(results)]
    bindings = [tirx.Bind(name, value) for name, value in zip(names, results)]
    return sequence([*bindings, *(store(i, name) for i, name in enumerate(names))])


def sequence(statements: Sequence[Any]) -> Any:
    """Statements one after the other."""
    if not statements:
        return tirx.Evaluate(0)
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
