"""Workloads that scripts define: functions of Python arguments that return TE tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import RecordError

Workload = Callable[..., Sequence[Any]]

_WORKLOADS: dict[str, Workload] = {}


def register_workload(
    func_name: str | Workload, f: Workload | None = None, override: bool = False
) -> Any:
    """Register a function that defines a computation; a decorator, with or without a name.

    Parameters
    ----------
    func_name : str or callable
        The name; a function's own if a function is given.
    f : callable, optional
        Gets the arguments of a task and returns its TE tensors: inputs first, then outputs.
    override : bool
        Replace a workload of that name.

    Raises
    ------
    RecordError
        There is a workload of that name, and `override` is False.
    """
    if callable(func_name):
        return register_workload(func_name.__name__, func_name, override)

    def register(workload: Workload) -> Workload:
        if func_name in _WORKLOADS and not override:
            raise RecordError(
                f"workload {func_name!r} is registered already; pass override=True to replace it"
            )
        _WORKLOADS[func_name] = workload
        return workload

    return register if f is None else register(f)


def make_workload_key(func: str | Workload, args: Sequence[Any]) -> str:
    """Name and arguments of a registered workload as JSON: '["matmul", 128, 64, 32]'."""
    name = func if isinstance(func, str) else func.__name__
    if name not in _WORKLOADS:
        raise RecordError(
            f"workload {name!r} is not registered; decorate it with "
            "@auto_scheduler.register_workload"
        )
    return json.dumps([name, *args])


def registered_names() -> frozenset[str]:
    """Names of all registered workloads."""
    return frozenset(_WORKLOADS)


def tensors_of(key: str) -> list[Any]:
    """TE tensors of a registered workload: inputs, then outputs.

    Raises
    ------
    RecordError
        The key is not a JSON list, or names no registered workload.
    """
    try:
        name, *args = json.loads(key)
    except (ValueError, TypeError):
        raise RecordError(f"{key!r} is not the key of a registered workload") from None
    make_workload_key(name, args)
    return list(_WORKLOADS[name](*args))
