"""`relay.backend.graph_executor_codegen`: lowering of one function to kernels."""

from __future__ import annotations

from collections import Counter
from typing import Any

import tvm

from ... import target as targets
from ...lowering.selection.extract import kernels
from ...pass_context import default_opt_level
from ...records.auto_scheduler.dispatcher import extracting
from ..build_module import build, only_target
from ..calling_convention import as_module


class GraphExecutorCodegen:
    """Lowers functions, with schedules or without.

    Parameters
    ----------
    mod : None
        Has no effect; TVM passed a runtime module here.
    target : str, dict or Target
        Compilation target.
    use_topi_schedule : bool
        True: schedule and compile kernels, as `relay.build` does. False: keep their plain
        computes, as task extraction does.
    """

    def __init__(self, mod: Any, target: Any, use_topi_schedule: bool = True) -> None:
        self.target = targets.parse(only_target(target))
        self.use_topi_schedule = use_topi_schedule

    def codegen(self, function: Any) -> tuple[str, Any, dict[str, Any]]:
        """Lower a function or a module.

        Returns
        -------
        graph_json : str
            Graph for `graph_executor.create`; empty without schedules.
        lowered : the compiled library, or without schedules a dict of target text to IRModule
            The modules have one PrimFunc for every kernel call.
        params : dict of str to array
            Parameters that the graph reads.

        Raises
        ------
        BuildError
            The function or module is invalid.
        """
        if self.use_topi_schedule:
            library = build(function, self.target)
            return library.get_graph_json(), library.get_lib(), library.get_params()
        with extracting(), default_opt_level():
            found = kernels(as_module(function), {}, self.target)
        lowered: dict[str, tvm.IRModule] = {}
        taken: Counter[str] = Counter()
        for target, kernel in found:
            name = str((kernel.func.attrs or {}).get("global_symbol", "kernel"))
            taken[name] += 1
            name = f"{name}_{taken[name]}" if taken[name] > 1 else name
            of_target = lowered.setdefault(str(target), tvm.IRModule())
            of_target[name] = kernel.func.with_attr("global_symbol", name)
        return "", lowered, {}


GraphRuntimeCodegen = GraphExecutorCodegen
"""Name before TVM 0.8."""
