"""Skip launches of kernels whose grid has no blocks, where only running tells its size.

TVM 0.27 launches one block instead, which would read and write beyond tensors without elements:

    before   for i in thread_binding(n, "blockIdx.x"):  ..
    after    for _ in range(0 < n):  for i in thread_binding(n, "blockIdx.x"):  ..

A loop, since TVM places no barriers inside of a condition.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from ..tir_visit import nodes_of


def skip_empty_launches(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function with each launch of a dynamic size in a loop of one round or none."""
    return func.with_body(_guarded(func.body))


def _guarded(statement: Any) -> Any:
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_guarded(each) for each in statement.seq])
    if isinstance(statement, s_tir.SBlockRealize):
        block = statement.block
        block = s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, _guarded(block.body),
            block.init, block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip
        return s_tir.SBlockRealize(statement.iter_values, statement.predicate, block)
    if _launched(statement) is not None:
        launched = map(_launched, nodes_of(statement, (tirx.For, tirx.AttrStmt)))
        sizes = [each for each in launched if not isinstance(each, tirx.IntImm | None)]
        if not sizes:
            return statement
        once, zero = tirx.Var("once", "int32"), tirx.const(0, "int32")
        rounds = tirx.Cast("int32", tirx.all(*(size > 0 for size in sizes)))
        return tirx.For(once, zero, rounds, tirx.ForKind.SERIAL, statement)
    if isinstance(statement, tirx.AttrStmt):
        marked = statement.node, statement.attr_key, statement.value
        return tirx.AttrStmt(*marked, _guarded(statement.body))
    if isinstance(statement, tirx.IfThenElse):
        otherwise = statement.else_case and _guarded(statement.else_case)
        return tirx.IfThenElse(statement.condition, _guarded(statement.then_case), otherwise)
    if isinstance(statement, tirx.For):
        loop = statement.loop_var, statement.min, statement.extent, statement.kind
        return tirx.For(*loop, _guarded(statement.body), annotations=statement.annotations)
    return statement


def _launched(statement: Any) -> Any:
    """Threads or blocks along an axis that a statement launches; None for other statements."""
    if isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.THREAD_BINDING:
        return statement.extent
    if isinstance(statement, tirx.AttrStmt) and statement.attr_key == "thread_extent":
        return statement.value
    return None
