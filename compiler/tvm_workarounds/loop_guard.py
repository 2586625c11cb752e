"""Keep LLVM from vectorizing loops that LLVM 22.1, bundled with TVM 0.27, miscompiles.

    for i in 32:
      out[j, i] = if_then_else(4 <= i % 8, a[j, i % 8 - 4], b[j, i % 8])

LLVM treats i % 8 as a 3-bit counter. Its loop vectorizer may read 16 consecutive elements indexed
by such a counter if a check before the loop shows that the counter never wraps to 0. LLVM 22.1
drops that check if there already is one for a wider counter, which it assumes to imply the other
(llvm/llvm-project issue 191382, fixed in a later release), and reads a[j, 4 ... 11]. Wider counters
need a check only if they are used under a condition; elsewhere LLVM knows that they don't overflow.

So a loop that has conditions and takes its variable modulo a power of two gets a prefetch, a call
that makes the vectorizer skip the loop. The vectorizer skips loops over explicit vectors anyway,
which schedules emit where speed matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op, TensorLoad

from schedules.tir_visit import nodes_of

from ..primfuncs.query import replace_loop

_LOOPS = (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL)
_IF_THEN_ELSE = "prim.if_then_else"


def guard_loops() -> tvm.transform.Pass:
    """The pass, on lowered functions: flat buffers, explicit vectors, no blocks."""

    @tvm.tirx.transform.prim_func_pass(opt_level=0, name="GuardLoops")
    def guard(func: tirx.PrimFunc, _: tvm.IRModule, __: Any) -> tirx.PrimFunc:
        if not _is_suspect(func.body):
            return func
        return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, _guarded)))

    return guard


def _is_suspect(body: tirx.Stmt) -> bool:
    """Whether there are a condition and a modulo of a power of two, as few functions have both."""
    return _wraps_with_condition(body, lambda _: True)


def _guarded(loop: tirx.For) -> tirx.For:
    if loop.kind not in _LOOPS or not _is_miscompiled(loop):
        return loop
    buffers = _outer_buffers(loop)
    if not buffers:
        return loop
    guard = tirx.Evaluate(_prefetch(buffers[0]))
    return replace_loop(loop, body=tirx.SeqStmt([guard, loop.body]))


def _is_miscompiled(loop: tirx.For) -> bool:
    """Whether the loop has scalars, conditions, and its variable modulo a power of two."""
    # Following each variable takes long, and few loops can be suspect.
    if _stores_vectors(loop.body) or not _is_suspect(loop.body):
        return False
    following = [loop.loop_var]  # the loop's variable and what is computed from it

    def bind(statement: Any) -> None:
        if _uses_any(statement.value, following):
            following.append(statement.var)

    return _wraps_with_condition(
        loop.body, lambda value: _uses_any(value, following), [(tirx.stmt.Bind, bind)]
    )


def _stores_vectors(body: tirx.Stmt) -> bool:
    stores = nodes_of(body, tirx.BufferStore)
    return any(tvm.DataType(store.value.ty.dtype).lanes > 1 for store in stores)


def _wraps_with_condition(
    body: tirx.Stmt, is_counter: Callable[[Any], bool], beside: Sequence[tuple[Any, Any]] = ()
) -> bool:
    """Whether there are a condition and a counter modulo a power of two.

    `beside` are other types of nodes and what is called with each, in the order of the program.
    """
    conditional = wraps = False

    def modulo(node: Any) -> None:
        nonlocal wraps
        divisor = node.b
        if isinstance(divisor, tirx.IntImm) and _is_power_of_two(int(divisor)):
            wraps = wraps or is_counter(node.a)

    def branch(_: Any) -> None:
        nonlocal conditional
        conditional = True

    def call(node: Call) -> None:
        if isinstance(node.op, Op) and node.op.name == _IF_THEN_ELSE:
            branch(node)

    tvm_ffi.structural_walk(
        body,
        [((tirx.FloorMod, tirx.Mod), modulo), (tirx.IfThenElse, branch), (Call, call), *beside],
    )
    return conditional and wraps


def _uses_any(node: Any, variables: list[Any]) -> bool:
    return any(
        any(variable.same_as(other) for other in variables) for variable in nodes_of(node, tirx.Var)
    )


def _is_power_of_two(value: int) -> bool:
    return value > 1 and value & (value - 1) == 0


def _outer_buffers(loop: tirx.For) -> list[Any]:
    """Buffers that the loop reads or writes and that exist outside of it."""
    declarations = nodes_of(loop.body, (tirx.stmt.AllocBuffer, tirx.stmt.DeclBuffer))
    inside = [node.buffer for node in declarations]
    accessed = [
        node.source if isinstance(node, TensorLoad) else node.buffer
        for node in nodes_of(loop.body, (TensorLoad, tirx.BufferStore))
    ]
    return [b for b in accessed if not any(b.same_as(other) for other in inside)]


def _prefetch(buffer: Any) -> Any:
    """A prefetch of the buffer's first element, which stays in the cache after the first time."""
    address = tirx.address_of(tirx.BufferLoad(buffer, [tirx.const(0, "int32")]))
    for_reading, into_l1, of_data = (tirx.const(value, "int32") for value in (0, 3, 1))
    return tirx.call_llvm_intrin("void", "llvm.prefetch", address, for_reading, into_l1, of_data)
