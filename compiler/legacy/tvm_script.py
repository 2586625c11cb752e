"""TVMScript of TVM 0.9 to 0.19: `T.block`, whose name is `T.sblock` today, and its kin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tvm import s_tir
from tvm.tirx import script
from tvm.tirx.script.parser import parser

from .patches import Patches

_RENAMED = {"block": "sblock", "block_attr": "sblock_attr", "ret": "Return"}


def patch(patches: Patches) -> None:
    """Let functions be written, and blocks of schedules be found, by the old names."""
    for old, name in _RENAMED.items():
        if hasattr(script, name):
            patches.add(script, old, getattr(script, name))
    patches.add(s_tir.Schedule, "get_block", s_tir.Schedule.get_sblock)


_annotation = parser.find_decorator_annotation


def _annotation_of_old(node: Any, annotation: str, default: bool = True) -> bool:
    """What a decorator says; a bare `@T.prim_func` is a function with blocks."""
    return _annotation(node, annotation, default or annotation == "s_tir")


_new_func_attr = script.func_attr


def _func_attr(attrs: Mapping[str, Any]) -> Any:
    """A function's attributes; `tir.noalias` is `tirx.noalias` today."""
    return _new_func_attr({re.sub(r"^tir\.", "tirx.", name): attrs[name] for name in attrs})


def change(patches: Patches) -> None:
    """Have `T.prim_func` make functions with blocks, and `T.alloc_buffer` allocate for them."""
    patches.set(script, "func_attr", _func_attr)
    patches.set(parser, "find_decorator_annotation", _annotation_of_old)
    patches.set(script, "alloc_buffer", script.sblock_alloc_buffer)
