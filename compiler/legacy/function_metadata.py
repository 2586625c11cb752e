"""`function_metadata` of a built library: what its main function takes of memory, in bytes.

Kernels have no entries: what they read, write and compute is in the library's `report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm.target import Target
from tvm.tirx import IntImm

from ..errors import InputError
from ..runtime import FactoryModule
from .patches import Patches

MAIN = "__tvm_main__"


@dataclass(frozen=True)
class FunctionInfo:
    """Bytes of inputs and results together, of all between them, and of weights, by target."""

    io_sizes: Mapping[Target, IntImm]
    workspace_sizes: Mapping[Target, IntImm]
    constant_sizes: Mapping[Target, IntImm]


def of_library(library: FactoryModule) -> dict[str, FunctionInfo]:
    """`library.function_metadata`. Raises InputError: only running the library tells its sizes."""
    metadata = library.metadata
    ends = (*metadata.inputs, *metadata.outputs)
    open_ends = [info.name for info in ends if not info.is_static]
    if open_ends or metadata.report["unknown_activations"]:
        raise InputError(
            "function_metadata: only running tells the size of "
            + (", ".join(open_ends) or "what lies between inputs and results")
        )
    target = library.target
    if not isinstance(target, Target):
        target = tvm.target.Target(target)
    io = sum(info.nbytes for info in ends)
    between, weights = (
        int(metadata.report[name]) for name in ("activations_bytes", "weights_bytes")
    )
    sizes = ({target: IntImm("int64", size)} for size in (io, between, weights))
    return {MAIN: FunctionInfo(*sizes)}


def patch(patches: Patches) -> None:
    """Let libraries have `function_metadata`."""
    patches.add(FactoryModule, "function_metadata", property(of_library))
