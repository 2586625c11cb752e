"""`tvm.lower`, `tvm.build_config` and rules for intrinsics as TVM 0.6 had them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm.ir.transform import PassContext

from ...errors import ScheduleError
from ..te import driver
from ..te_names import build
from ..tir import register_intrin_rule

__all__ = ["build", "build_config", "lower", "register_intrin_rule"]

logger = logging.getLogger("baton.legacy")

# An option of `build_config`: the pass that it is for today, and that pass's own option.
_OPTIONS: dict[str, tuple[str, str]] = {
    "auto_unroll_max_depth": ("tir.UnrollLoop", "auto_max_depth"),
    "auto_unroll_max_extent": ("tir.UnrollLoop", "auto_max_extent"),
    "auto_unroll_max_step": ("tir.UnrollLoop", "auto_max_step"),
    "disable_vectorize": ("tir.disable_vectorize", ""),
    "double_buffer_split_loop": ("tir.InjectDoubleBuffer", "split_loop"),
    "instrument_bound_checkers": ("tir.instrument_bound_checkers", ""),
    "partition_const_loop": ("tir.LoopPartition", "partition_const_loop"),
    "unroll_explicit": ("tir.UnrollLoop", "explicit_unroll"),
}
_WITHOUT_EFFECT = {"data_alignment", "detect_global_barrier", "disable_select_rewriting"}
_WITHOUT_EFFECT |= {"dump_pass_ir", "offset_factor", "restricted_func"}


def build_config(
    *, add_lower_pass: Sequence[tuple[int, Callable[[Any], Any]]] = (), **options: Any
) -> PassContext:
    """The context in which `tvm.lower` and `tvm.build` use these options.

    `add_lower_pass`: phase and function from statement to statement.
    Raises ScheduleError: TVM 0.6 had no such option.
    """
    config: dict[str, Any] = {}
    for name, value in options.items():
        if name in _WITHOUT_EFFECT:
            logger.warning("tvm.build_config: %s has no effect any more", name)
        elif name not in _OPTIONS:
            raise ScheduleError(f"tvm.build_config takes no option {name!r}")
        else:
            key, field = _OPTIONS[name]
            if field:
                config.setdefault(key, {})[field] = value
            else:
                config[key] = value
    if add_lower_pass:
        config["tir.add_lower_pass"] = [(n, _over_statements(run)) for n, run in add_lower_pass]
    return PassContext(config=config)


def _over_statements(run: Callable[[Any], Any]) -> Any:
    """A pass over functions that changes their bodies."""

    def change(function: Any, _mod: Any, _context: Any) -> Any:
        return function.with_body(run(function.body))

    return tvm.tirx.transform.prim_func_pass(change, opt_level=0, name="add_lower_pass")


def lower(
    sch: Any,
    args: Sequence[Any] | None = None,
    name: str = "default_function",
    binds: Mapping[Any, Any] | None = None,
    simple_mode: bool = False,
) -> Any:
    """The loops of a schedule: a statement in simple mode, else a function for `tvm.build`."""
    function = driver.lower(sch, args, name, binds, simple_mode)[name]
    return function.body if simple_mode else function
