"""TIR's intrinsics by old names: `tir.exp` is `tirx.exp` today, and `tir.ceil` `prim.ceil`."""

from __future__ import annotations

from typing import Any

import tvm

from .patches import Patches

_TODAY = ("tirx", "prim")
_new_name = tvm.ir.Op.name
_new_get = tvm.ir.Op.get


class OpName(str):
    """The name of an intrinsic, which equals its old name, too; it prints as it is today.

    A set or dict of old names does not find it: its hash is that of today's name.
    """

    __slots__ = ()

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, str) and other.startswith("tir."):
            return self.partition(".")[2] == other.partition(".")[2]
        return str.__eq__(self, other)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = str.__hash__


def today(name: Any) -> Any:
    """An intrinsic's name: "tirx.exp" of "tir.exp" and of "exp"; others as they are."""
    if not isinstance(name, str) or name.startswith(tuple(f"{each}." for each in _TODAY)):
        return name
    bare = name.removeprefix("tir.")
    known = (f"{each}.{bare}" for each in _TODAY if _is_known(f"{each}.{bare}"))
    return next(known, f"{_TODAY[0]}.{bare}")


def _is_known(name: str) -> bool:
    try:
        _new_get(name)
    except AttributeError:
        return False
    return True


def change(patches: Patches) -> None:
    """Let `op.name` equal the old name."""
    patches.set(tvm.ir.Op, "name", property(_name))


def _name(op: tvm.ir.Op) -> str:
    name = str(_new_name.__get__(op))
    return OpName(name) if name.partition(".")[0] in _TODAY else name
