"""Flags for the names and options of `relay.backend.Executor` and `Runtime`."""

from __future__ import annotations

import argparse
from typing import Any

from . import TVMCException

_TYPES = {"runtime.BoxBool": bool, "runtime.BoxInt": int, "runtime.String": str}


def _truth(text: str) -> bool:
    if text.lower() in ("1", "true", "on"):
        return True
    if text.lower() in ("0", "false", "off", ""):
        return False
    raise ValueError(text)


def generate_registry_args(
    parser: argparse.ArgumentParser, registry: Any, default: str | None = None
) -> None:
    """Add `--executor aot` and `--executor-aot-interface-api c` for each name and option.

    `registry`: `Executor` or `Runtime`.
    """
    flag = registry.__name__.lower()
    names = registry.list_registered()
    group = parser.add_argument_group(flag)
    group.add_argument(f"--{flag}", default=default, help=f"one of {', '.join(names)}")
    for name in names:
        for option, kind in registry.list_registered_options(name).items():
            read = _TYPES[kind]
            group.add_argument(
                f"--{flag}-{name}-{option}",
                type=_truth if read is bool else read,
                help=f"of the {flag} {name}",
            )


def reconstruct_registry_entity(args: argparse.Namespace, registry: Any) -> Any:
    """Values of the parsed flags; None if none is given.

    Raises TVMCException: there is no such name, or an option is for another one.
    """
    flag = registry.__name__.lower()
    chosen = getattr(args, flag)
    if chosen is None:
        return None
    names = registry.list_registered()
    if chosen not in names:
        raise TVMCException(
            f'{registry.__name__} "{chosen}" is not defined; there are {", ".join(names)}'
        )
    given: dict[str, Any] = {}
    for name in names:
        for option in registry.list_registered_options(name):
            value = getattr(args, f"{flag}_{name}_{option}".replace("-", "_"))
            if value is None:
                continue
            if name != chosen:
                raise TVMCException(
                    f"Passed --{flag}-{name}-{option} but did not specify {name} {flag}"
                )
            given[option] = value
    return registry(chosen, given)
