"""Workloads that scripts define: functions of Python arguments that return TE tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tvm.tirx import PrimFunc

from ..errors import RecordError

Workload = Callable[..., Sequence[Any]]

WORKLOAD_FUNC_REGISTRY: dict[str, Workload | list[Any] | PrimFunc] = {}
"""Name to the function that defines a computation, or key to the computation itself."""


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
        return register_workload(func_name.__qualname__, func_name, override)

    def register(workload: Workload) -> Workload:
        if func_name in WORKLOAD_FUNC_REGISTRY and not override:
            raise RecordError(
                f"workload {func_name!r} is registered already; pass override=True to replace it"
            )
        WORKLOAD_FUNC_REGISTRY[func_name] = workload
        return workload

    return register if f is None else register(f)


def make_workload_key(func: str | Workload, args: Sequence[Any]) -> str:
    """Name and arguments of a registered workload as JSON: '["matmul", 128, 64, 32]'."""
    name = func if isinstance(func, str) else func.__qualname__
    if name not in WORKLOAD_FUNC_REGISTRY:
        raise RecordError(
            f"workload {name!r} is not registered; decorate it with "
            "@auto_scheduler.register_workload"
        )
    return json.dumps([name, *args])


def register_workload_tensors(
    workload_key: str, tensors: Sequence[Any] | PrimFunc, override: bool = True
) -> str:
    """Register the computation of a key.

    `tensors`: inputs first; or the unscheduled function. Returns the key. Raises RecordError: there
    is a workload of that key, and `override` is False.
    """
    if workload_key in WORKLOAD_FUNC_REGISTRY and not override:
        raise RecordError(f"workload {workload_key!r} is registered already")
    computed = tensors if isinstance(tensors, PrimFunc) else list(tensors)
    WORKLOAD_FUNC_REGISTRY[workload_key] = computed
    return workload_key


def serialize_workload_registry_entry(workload_key: str) -> tuple[str, Workload | str]:
    """Serialize a workload for another process, by its registered name or a key with arguments."""
    import tvm

    name = workload_key if workload_key in WORKLOAD_FUNC_REGISTRY else _read_key(workload_key)[0]
    entry = WORKLOAD_FUNC_REGISTRY[name]
    if callable(entry):
        return name, entry
    return name, str(tvm.ir.save_json(entry))


def deserialize_workload_registry_entry(data: tuple[str, Workload | str]) -> None:
    """Register a workload that `serialize_workload_registry_entry` serialized."""
    import tvm

    name, entry = data
    if isinstance(entry, str):
        register_workload_tensors(name, tvm.ir.load_json(entry))
    else:
        WORKLOAD_FUNC_REGISTRY.setdefault(name, entry)


def computation_of(key: str) -> list[Any] | PrimFunc:
    """TE tensors, inputs first, or function of a registered key; RecordError if it is not one."""
    entry = WORKLOAD_FUNC_REGISTRY.get(key)
    if isinstance(entry, PrimFunc):
        return entry
    if entry is None or callable(entry):
        name, args = _read_key(key)
        make_workload_key(name, args)
        entry = WORKLOAD_FUNC_REGISTRY[name]
        return list(entry(*args)) if callable(entry) else entry
    return entry


def _read_key(key: str) -> tuple[str, list[Any]]:
    try:
        name, *args = json.loads(key)
    except (ValueError, TypeError):
        raise RecordError(f"{key!r} is not the key of a registered workload") from None
    return name, args
