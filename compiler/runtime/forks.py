"""Forks of a process that has run kernels: the child runs them too, instead of hanging for ever.

A child has the thread that forked and no other. TVM keeps a pool of workers for each thread that
has run kernels, which the child then has without the workers, and would wait for them for ever. So
in the child that thread does all work by itself; other threads of the child get pools of their own,
as everywhere. A fork waits for executors that other threads are running, since the child would
have them half-way through and locked.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from compiler.errors import BatonError

from . import thread_pool

_WAIT_S = 30.0
"""How long a fork waits for the run of an executor in another thread."""

_with_a_pool: set[int] = set()
"""Threads that may have a pool of workers."""


class ForkSafeLock:
    """A reentrant lock that a fork waits for, so that no child finds it held by a lost thread.

    Where that takes too long, the child's copy can't be acquired: doing so raises BatonError.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._lost = False
        _locks.add(self)

    def __enter__(self) -> None:
        if self._lost:
            raise BatonError(
                "this process was forked while another thread was running this executor; make a "
                "new executor of the library in the child, or fork before threads run it"
            )
        self._lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def acquire(self, timeout: float) -> bool:
        """Acquire the lock; false if that takes longer than `timeout`, in seconds."""
        return self._lock.acquire(timeout=timeout)

    def lose(self) -> None:
        """Mark the lock as lost to the forked child: entering it raises from now on."""
        self._lost = True


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()
_acquired: list[ForkSafeLock] = []


def note_kernels() -> None:
    """Say that the calling thread runs kernels, so that TVM may have a pool of workers for it."""
    _with_a_pool.add(threading.get_ident())


def _before() -> None:
    _acquired.extend(lock for lock in list(_locks) if lock.acquire(_WAIT_S))


def _after() -> None:
    while _acquired:
        _acquired.pop().__exit__()


def _after_in_child() -> None:
    for lock in list(_locks):
        if lock not in _acquired:
            lock.lose()
    if threading.get_ident() in _with_a_pool:
        thread_pool.configure(1)
    _with_a_pool.clear()
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
