"""Relax's functions under keywords of TVM 0.20: `out_sinfo`, `sinfo_args`, `build(pipeline=)`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tvm.relax.op
import tvm.relax.script
import tvm.relax.script.builder.ir
import tvm.script.parser
from tvm.runtime.script_printer import Scriptable

from .patches import Patches

_TODAY = {
    **{"out_sinfo": "out_ty", "sinfo_args": "ty_args", "pipeline": "relax_pipeline"},
    "show_all_struct_info": "show_all_ty",
}


def patch(patches: Patches) -> None:
    """Let the functions of Python and those of TVMScript take them."""
    for module in (
        *(tvm.relax, tvm.relax.op, tvm.relax.op.base),
        *(tvm.relax.script, tvm.relax.script.builder.ir),
        *(tvm.script.relax, tvm.script.parser.relax),
    ):
        for name, each in list(vars(module).items()):
            if inspect.isfunction(each) and set(_TODAY.values()) & set(_keywords(each)):
                patches.set(module, name, _renamed(each))


def change(patches: Patches) -> None:
    """Let the methods that write a module as text take them."""
    for name in ("script", "show"):
        patches.set(Scriptable, name, _renamed(getattr(Scriptable, name)))


def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    code = inspect.unwrap(function).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


@functools.cache
def _renamed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{_TODAY.get(key, key): value for key, value in kwargs.items()})

    return renamed
