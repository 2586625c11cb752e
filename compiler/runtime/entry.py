"""The leanest call of a library: its inputs' tensors straight to the virtual machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from compiler.runtime import forks
from compiler.tvm_workarounds.fast_import import tvm

_STATIC, _WORKSPACE, _ENTRY = "main_static", "workspace", "entry"
GRAPH_ENTRY = "main_graph"
"""A function like `main` whose kernels a GPU replays; its weights are those of the first call."""


def fastest(machine: Any) -> str:
    """The function of a virtual machine for weights that stay, if nobody looks at its calls."""
    return GRAPH_ENTRY if machine.implements_function(GRAPH_ENTRY) else "main"


def make_entry(code: Any, devices: Sequence[Any], weights: Iterable[Any]) -> Callable[..., Any]:
    """A function of the inputs; `FactoryModule.entry` says what it takes.

    `code`: the runnable VM executable. `weights`: in the order of `main`'s trailing parameters.
    """
    forks.note_kernels()  # of calls nothing is seen
    machine = tvm.runtime.vm.VirtualMachine(code, list(devices)).module
    static = machine.implements_function(_STATIC)
    kept = [*weights, *(machine[_WORKSPACE]() if static else ())]
    # Saving a function binds its last arguments inside of the virtual machine.
    machine["save_function"](_STATIC if static else fastest(machine), _ENTRY, 1, *kept)
    return machine[_ENTRY]
