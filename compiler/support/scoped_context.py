"""Contexts that nest: entered with `with`, the innermost asked first.

They are `contextvars`: a context entered in one thread is not seen by another, and an exception
leaves none behind. A pool's threads see the contexts of their maker if it submits
`contextvars.copy_context().run`; `is_only_elsewhere` finds threads that lack them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")


@contextmanager
def scoped_value(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Give a context variable a value in a `with` block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


class Closing:
    """Base of what is closed at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what the object holds."""


class _Current:
    """`Context.current`: the innermost context of the calling thread."""

    def __get__(self, instance: Any, owner: type[NestedContext]) -> Any:
        return owner.active()[0]


class NestedContext:
    """Base of a family of contexts; each family has one class that names its `kind`."""

    kind: ClassVar[str]
    bottom: ClassVar[NestedContext]
    """Lies below whatever a thread has entered; the module of the family sets it."""
    hides_outer: ClassVar[bool] = False
    """Whether the contexts around this one are not asked."""
    current = _Current()
    _entered: ClassVar[ContextVar[tuple[Any, ...]]]
    _depth_of_thread: ClassVar[dict[int, int]]  # thread identifier to number of contexts

    def __init_subclass__(cls, kind: str | None = None) -> None:
        if kind is not None:
            cls.kind = kind
            cls._entered = ContextVar(kind, default=())
            cls._depth_of_thread = {}

    def __enter__(self) -> Self:
        self._entered.set((self, *self._entered.get()))
        self._count(1)
        return self

    def __exit__(self, *_: object) -> None:
        entered = self._entered.get()
        if not entered or entered[0] is not self:
            raise RuntimeError(f"{self.kind} contexts must be left in the order of entry")
        self._entered.set(entered[1:])
        self._count(-1)

    def _count(self, change: int) -> None:
        thread = threading.get_ident()
        depth = self._depth_of_thread.pop(thread, 0) + change
        if depth > 0:
            self._depth_of_thread[thread] = depth

    @classmethod
    def is_only_elsewhere(cls) -> bool:
        """Whether another live thread has entered contexts, and the calling one sees none."""
        if cls._entered.get():
            return False
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        return not others.isdisjoint(list(cls._depth_of_thread))

    @classmethod
    def active(cls) -> tuple[Any, ...]:
        """The calling thread's contexts, innermost first."""
        contexts = []
        for context in (*cls._entered.get(), cls.bottom):
            contexts.append(context)
            if context.hides_outer:
                break
        return tuple(contexts)

    def with_outer(self) -> tuple[Any, ...]:
        """This context and those around it; all active ones around one that is not entered."""
        active = self.active()
        return active[active.index(self) :] if self in active else (self, *active)


_deciding: list[tuple[Callable[[], object], object]] = []


def register_lowering_option(value: Callable[[], object], default: object) -> None:
    """Have builds ask for a setting of the calling thread that decides what operators become."""
    _deciding.append((value, default))


def non_default_lowering_options() -> tuple[object, ...]:
    """Those settings that are not the defaults; their `repr` says all about them."""
    values = [(value(), default) for value, default in _deciding]
    return tuple(value for value, default in values if value != default)
