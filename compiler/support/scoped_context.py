"""Contexts that nest: entered with `with`, the innermost asked first.

They are `contextvars`: a context entered in one thread is not seen by another, and an exception
leaves none behind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self


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

    def __init_subclass__(cls, kind: str | None = None) -> None:
        if kind is not None:
            cls.kind = kind
            cls._entered = ContextVar(kind, default=())

    def __enter__(self) -> Self:
        self._entered.set((self, *self._entered.get()))
        return self

    def __exit__(self, *_: object) -> None:
        entered = self._entered.get()
        if not entered or entered[0] is not self:
            raise RuntimeError(f"{self.kind} contexts must be left in the order of entry")
        self._entered.set(entered[1:])

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
