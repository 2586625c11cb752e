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
    texts = [str(piece) if isinstance(piece, (str, int)) else piece for piece in pieces]
    room = sum(len(text.encode()) if isinstance(text, str) else _MOST_DIGITS for text in texts)
    message, at = local("uint8", room + 1), local("int32")
    message[room] = T.uint8(0)
    at[0] = T.int32(room)
    for text in reversed(texts):
        if isinstance(text, str):
            codes = text.encode()
            for place, code in enumerate(codes):
                message[at[0] + (place - len(codes))] = T.uint8(code)
            at[0] = at[0] - len(codes)
        else:
            _write_number(message, at, tirx.Cast("int64", text))
    T.evaluate(
        tirx.call_extern("int32", _SET_ERROR, StringImm(kind), tirx.address_of(message[at[0]]))
    )


def give_up() -> None:
    """Have the kernel return, with an error that is set; in one place of a kernel only."""
    T.evaluate(tirx.call_cpacked(_FAIL, tirx.reinterpret("handle", tirx.const(0, "int64"))))


def _write_number(message: Any, at: Any, number: Any) -> None:
    """Write a number in front of the place `at`, last digit first."""
    rest = local("int64")
    rest[0] = number
    with T.serial(0, _MOST_DIGITS - 1) as place, T.If((place == 0) | (rest[0] != 0)), T.Then():
        digit = tirx.truncmod(rest[0], tirx.const(10, "int64"))
        message[at[0] - 1] = tirx.Cast("uint8", tirx.abs(digit) + 48)
        at[0] = at[0] - 1
        rest[0] = tirx.truncdiv(rest[0], tirx.const(10, "int64"))
    with T.If(number < 0), T.Then():
        message[at[0] - 1] = T.uint8(ord("-"))
        at[0] = at[0] - 1
