"""Tells when threads disturb each other between the calls of one executor.

Calls take turns, but a thread's `set_input`, `run` and `get_output` are three of them: what another
thread does in between would show as a wrong answer. It is an error instead.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from compiler.errors import InputError
from compiler.runtime.metadata import TensorInfo

_ADVICE = (
    "use library.session(), whose run(inputs) is one call, or an executor for each thread: they "
    "share the weights"
)


class _Thread(threading.local):
    """What one thread lost to another."""

    def __init__(self) -> None:
        self.state = _State()


class _State:
    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.overtaken = False


class ThreadUse:
    """Who set which input and who ran last; called under the executor's lock."""

    def __init__(self) -> None:
        self._mine = _Thread()
        self._setters: dict[int, _State] = {}  # of values that no run has taken yet
        self._runner: _State | None = None

    def note_set(self, index: int) -> None:
        """The calling thread sets an input."""
        mine = self._mine.state
        before = self._setters.get(index)
        if before is not None and before is not mine:
            before.lost.add(index)
        mine.lost.discard(index)
        self._setters[index] = mine

    def note_run(self, infos: Sequence[TensorInfo]) -> None:
        """The calling thread runs; `infos` describe the inputs.

        Raises InputError: another thread has set an input since this one did.
        """
        mine = self._mine.state
        lost = sorted(infos[index].name for index in mine.lost)
        mine.lost.clear()
        if lost:
            raise InputError(
                f"another thread has set {', '.join(map(repr, lost))} since this one did; {_ADVICE}"
            )
        self._setters.clear()
        if self._runner is not None and self._runner is not mine:
            self._runner.overtaken = True
        mine.overtaken = False
        self._runner = mine

    def require_own_run(self) -> None:
        """Raise InputError if the calling thread has run, and another one since."""
        if self._mine.state.overtaken:
            raise InputError(
                "another thread has run this executor since this one did, so that the outputs are "
                f"the other's; {_ADVICE}"
            )
