"""Correct what TVM 0.27 makes of launches.

Of a grid without blocks it makes one block, which would read and write beyond tensors without
elements. Its size may be known only at run time:

    before   for i in thread_binding(n, "blockIdx.x"):  ..
    after    for _ in range(0 < n):  for i in thread_binding(n, "blockIdx.x"):  ..

This is a loop, since TVM places no barriers inside of a condition.

Of a local buffer that is allocated before the launch, as in TVM's exclusive scan, it makes global
memory that all threads share. Such a buffer moves into the launch.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx

from ..tir_visit import nodes_of


def correct_launches(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function with its launches corrected."""
    return func.with_body(_corrected(func.body))


def _corrected(statement: Any, buffers: tuple[Any, ...] = ()) -> Any:
    """A statement of the host; the launches in it get the local `buffers` allocated before."""
    if isinstance(statement, tirx.SeqStmt):
        local = [each for each in statement.seq if _is_local(each)]
        rest = [each for each in statement.seq if not _is_local(each)]
        corrected = [_corrected(each, (*buffers, *local)) for each in rest]
        return tirx.SeqStmt(corrected) if len(corrected) > 1 else corrected[0]
    if isinstance(statement, s_tir.SBlockRealize):
        block = statement.block
        body = _corrected(block.body, buffers)
        block = s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, body,
            block.init, block.alloc_buffers, block.match_buffers, block.annotations,
        )  # fmt: skip
        return s_tir.SBlockRealize(statement.iter_values, statement.predicate, block)
    if _launched(statement) is not None:
        launched = map(_launched, nodes_of(statement, (tirx.For, tirx.AttrStmt)))
        sizes = [each for each in launched if each is not None and not _is_positive(each)]
        statement = _with_buffers(statement, buffers) if buffers else statement
        if not sizes:
            return statement
        once, zero = tirx.Var("once", "int32"), tirx.const(0, "int32")
        rounds = tirx.Cast("int32", tirx.all(*(size > 0 for size in sizes)))
        return tirx.For(once, zero, rounds, tirx.ForKind.SERIAL, statement)
    if isinstance(statement, tirx.IfThenElse):
        cases = [
            each and _corrected(each, buffers)
            for each in (statement.then_case, statement.else_case)
        ]
        return tirx.IfThenElse(statement.condition, *cases)
    if isinstance(statement, tirx.AttrStmt | tirx.For):
        return _with_body(statement, _corrected(statement.body, buffers))
    return statement


def _is_positive(size: Any) -> bool:
    return isinstance(size, tirx.IntImm) and int(size) > 0


def _is_local(statement: Any) -> bool:
    return isinstance(statement, tirx.AllocBuffer) and statement.buffer.scope() == "local"


def _with_buffers(statement: Any, buffers: tuple[Any, ...]) -> Any:
    """The statement with allocations inside of all axes that it launches."""
    if _launched(statement) is None:
        return tirx.SeqStmt([*buffers, statement])
    return _with_body(statement, _with_buffers(statement.body, buffers))


def _with_body(statement: Any, body: Any) -> Any:
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    loop = statement.loop_var, statement.min, statement.extent, statement.kind, body
    return tirx.For(*loop, statement.thread_binding, statement.annotations)


def _launched(statement: Any) -> Any:
    """Threads or blocks along an axis that a statement launches; None for other statements."""
    if isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.THREAD_BINDING:
        return statement.extent
    if isinstance(statement, tirx.AttrStmt) and statement.attr_key == "thread_extent":
        return statement.value
    return None
