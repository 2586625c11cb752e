"""A time limit for calls of code that may never return."""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

from compiler.errors import PartitionCallbackError

_Result = TypeVar("_Result")


class _Abandoned(BaseException):
    """Raised inside a call that ran past its limit, so that Python code in it ends."""


def within(seconds: float | None, where: str, call: Callable[[], _Result]) -> _Result:
    """Return or raise what `call` returns or raises, if it does so in time.

    Without a limit it runs in the calling thread. With one it runs in a separate thread, with
    the caller's context variables. Past the limit its result is never looked at; Python code in
    it is interrupted, while foreign code keeps the thread until it returns or the process ends.

    Raises PartitionCallbackError: the call took longer than `seconds`.
    """
    if seconds is None:
        return call()
    results: list[_Result] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            results.append(context.run(call))
        except _Abandoned:
            pass  # the caller no longer waits
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=f"callback of {where}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Abandoned)
        )
        raise PartitionCallbackError(
            f"{where} did not return within callback_timeout={seconds:g} s"
        )
    if errors:
        raise errors[0]
    return results[0]
