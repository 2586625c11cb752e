"""The names that `disabled_pass` and `required_pass` of a PassContext can have in a build."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..errors import InputError

_OF_KERNELS = (
    *("AddedPass", "ExpandLoops", "FoldByteTables", "FoldConstantTables", "GuardLoops"),
    *("JoinArgumentChecks", "MarkInternalTensors", "PackStorage", "RoundBFloat16"),
    *("ReshapesAsViews", "SeparateCpus", "StartAtInfinity", "StaticAllocation"),
)


def known() -> frozenset[str]:
    """Passes of Baton and of TVM that a build may run."""
    from tvm.relax import transform as of_relax
    from tvm.s_tir import transform as of_schedulable_tir
    from tvm.tirx import transform as of_tir

    from ..lowering import pass_flags, pipeline
    from ..relay import transform as of_relay

    public = {
        name
        for module in (of_relax, of_schedulable_tir, of_tir, of_relay)
        for name in dir(module)
        if name[:1].isupper()
    }
    steps = [
        each.name for each in vars(pass_flags).values() if isinstance(each, pass_flags.PassFlag)
    ]
    return frozenset({*steps, *_OF_KERNELS, *pipeline.optional_passes(), *public})


def require_known(names: Iterable[str]) -> None:
    """Raise InputError for a name that no pass has, with those that are like it."""
    names, passes = tuple(names), known()
    for name in names:
        if name not in passes:
            near = difflib.get_close_matches(name, passes, n=3, cutoff=0.6)
            like = f"; near to it: {', '.join(near)}" if near else ""
            raise InputError(f"there is no pass {name!r} to disable{like}")
