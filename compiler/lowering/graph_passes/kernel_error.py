"""Emit errors that a kernel raises itself, with run-time values in their messages.

The message of a TIR assertion is fixed at compile time. Here the kernel formats the message at run
time, sets the error, and returns a nonzero code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import StringImm
from tvm.script.ir_builder import tirx as T

from schedules.tir_visit import nodes_of

_SET_ERROR = "TVMFFIErrorSetRaisedFromCStr"
_FAIL = "getpid"
"""A C function without arguments that never returns 0. It is called like a packed one, so that the
kernel returns its result as an error code at once. TIR itself has no statement for that."""
_MOST_DIGITS = 20  # of an int64, with its sign


def local(dtype: str, extent: int = 1) -> Any:
    """A stack buffer of the kernel: an early return would not free TVM's workspace for "local"."""
    return T.buffer_proxy(T.alloc_buffer((extent,), dtype))


def set_error(kind: str, pieces: Sequence[Any]) -> None:
    """Emit serial CPU code that sets an error. A class unknown to the FFI becomes RuntimeError."""
    form = "".join(_escaped(str(p)) if isinstance(p, (str, int)) else "%lld" for p in pieces)
    numbers = [tirx.Cast("int64", p) for p in pieces if not isinstance(p, (str, int))]
    room = len(form.encode()) + 1 + _MOST_DIGITS * len(numbers)
    message = local("uint8", room)
    message[room - 1] = T.uint8(0)  # TVM shrinks a buffer to the range that it sees used
    start = tirx.address_of(message[0])
    size = tirx.const(room, "int64")
    T.evaluate(tirx.call_extern("int32", "snprintf", start, size, StringImm(form), *numbers))
    T.evaluate(tirx.call_extern("int32", _SET_ERROR, StringImm(kind), start))


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def give_up() -> None:
    """Emit a return with the error that was set; at most once in a kernel."""
    T.evaluate(tirx.call_cpacked(_FAIL, tirx.reinterpret("handle", tirx.const(0, "int64"))))


def gives_up(func: tirx.PrimFunc) -> bool:
    """Whether a kernel may return with an error."""
    return any(str(text.value) == _FAIL for text in nodes_of(func.body, StringImm))
