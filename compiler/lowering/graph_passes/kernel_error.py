"""Errors that a kernel raises itself, with numbers in their messages.

An assertion of TIR has a message that is fixed when the kernel is compiled; here the kernel writes
it while it runs, sets the error, and returns with a code that is not 0.
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
    """A buffer on the stack of the kernel that is being written down.

    TVM takes a "local" one from its workspace, which an error would not give back.
    """
    return T.buffer_proxy(T.alloc_buffer((extent,), dtype))


def set_error(kind: str, pieces: Sequence[Any]) -> None:
    """Have the kernel that is being written down set an error; serial code of a CPU only.

    Parameters
    ----------
    kind : str
        Name of the error: one that is registered with the FFI, else it is a RuntimeError.
    pieces : sequence of str, int or integer expression
        The message.
    """
    form = "".join(_escaped(str(p)) if isinstance(p, (str, int)) else "%lld" for p in pieces)
    numbers = [tirx.Cast("int64", p) for p in pieces if not isinstance(p, (str, int))]
    room = len(form.encode()) + 1 + _MOST_DIGITS * len(numbers)
    message = local("uint8", room)
    message[room - 1] = T.uint8(0)  # TVM makes a buffer as small as the places that it sees used
    start = tirx.address_of(message[0])
    size = tirx.const(room, "int64")
    T.evaluate(tirx.call_extern("int32", "snprintf", start, size, StringImm(form), *numbers))
    T.evaluate(tirx.call_extern("int32", _SET_ERROR, StringImm(kind), start))


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def give_up() -> None:
    """Have the kernel return, with an error that is set; in one place of a kernel only."""
    T.evaluate(tirx.call_cpacked(_FAIL, tirx.reinterpret("handle", tirx.const(0, "int64"))))


def gives_up(func: tirx.PrimFunc) -> bool:
    """Whether a kernel may return with an error."""
    return any(str(text.value) == _FAIL for text in nodes_of(func.body, StringImm))
