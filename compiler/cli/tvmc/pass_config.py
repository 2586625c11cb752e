"""Configuration of a PassContext, as `tvmc --pass-config` takes it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

from compiler.legacy.pass_context import type_of

from . import TVMCException

_ADDED_PASSES = "tir.add_lower_pass"


def parse_configs(configs: Sequence[str] | None) -> dict[str, Any]:
    """Configuration from "key=value"; values are numbers, true, false or text.

    "tir.add_lower_pass=1,tir.transform.UnrollLoop,2,my.module.make_pass" runs passes in phases of
    `tvm.lower`; several such texts add up.

    Raises TVMCException: there is no "=", or no key of that name, or none that text can set, or
    passes do not follow the numbers of their phases. Raises ModuleNotFoundError: the module of a
    pass is not there.
    """
    found: dict[str, Any] = {}
    for text in configs or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise TVMCException(f'Invalid format for pass config "{text}": give key=value')
        if key == _ADDED_PASSES:
            found.setdefault(key, []).extend(_passes(value))
            continue
        _check_key(key)
        try:
            found[key] = json.loads(value.lower() if value in ("True", "False") else value)
        except ValueError:
            found[key] = value
    return found


def _check_key(key: str) -> None:
    kind = type_of(key)
    if kind is None:
        raise TVMCException(f"Configuration '{key}' is not defined: TVM never had such a key")
    if kind.endswith("Config"):
        raise TVMCException(f"Configuration '{key}' is a {kind}, which no text can give")


def _passes(text: str) -> list[tuple[int, Any]]:
    words = text.split(",")
    phases, names = words[::2], words[1::2]
    if len(phases) != len(names) or not all(phase.isdigit() for phase in phases):
        raise TVMCException(
            f'{_ADDED_PASSES}={text}: give "phase,pass,phase,pass", with phases as numbers'
        )
    return [(int(phase), _made(name)) for phase, name in zip(phases, names)]


def _made(name: str) -> Any:
    """The pass that a function makes, which is named with its module."""
    module, _, function = name.rpartition(".")
    if module.startswith("tir"):
        module = f"tvm.{module}"
    found = getattr(importlib.import_module(module), function, None) if module else None
    if found is None:
        raise TVMCException(f"{_ADDED_PASSES}: there is no pass {name}")
    return found()
