"""`relay.prelude`: lists, options and trees, and the functions over them that scripts know.

They stand in `std/` as Relay text; a program that uses them is evaluated before it is compiled.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import tvm

from ..errors import RelayError
from . import adt
from .program import add_text

_FUNCTIONS = (
    *("id", "compose", "flip", "iterate"),
    *("hd", "tl", "nth", "update", "length", "map", "foldl", "foldr", "foldr1", "sum"),
    *("concat", "filter", "zip", "rev", "map_accuml", "map_accumr", "unfoldl", "unfoldr"),
    *("tmap", "size"),
)


@functools.cache
def _text(name: str) -> str:
    file = resources.files(__package__) / "std" / name
    if not name.endswith(".rly") or "/" in name or not file.is_file():
        raise RelayError(f"there are definitions prelude.rly and nat.rly, none in {name!r}")
    return file.read_text()


def import_from_std(mod: tvm.IRModule, name: str) -> None:
    """Add the definitions of "prelude.rly" or "nat.rly" to a module, in place.

    Raises
    ------
    RelayError
        There is no such text.
    """
    add_text(mod, _text(name), name)


class Prelude:
    """The standard definitions in a module; `prelude.map` and the like are its functions.

    Parameters
    ----------
    mod : tvm.IRModule, optional
        The module that gets them, in place.
    """

    def __init__(self, mod: tvm.IRModule | None = None) -> None:
        self.mod = tvm.IRModule() if mod is None else mod
        import_from_std(self.mod, "prelude.rly")
        for name in _FUNCTIONS:
            setattr(self, name, self.mod.get_global_var(name))

    def get_name(self, canonical: str, dtype: str) -> str:
        """The name of a definition for a dtype."""
        return f"tensor_{dtype}_t" if canonical == "tensor_t" else f"{canonical}_{dtype}"

    def get_global_var(self, canonical: str, dtype: str) -> tvm.ir.GlobalVar:
        """The function of that name for a dtype."""
        return self.mod.get_global_var(self.get_name(canonical, dtype))

    def get_type(self, canonical: str, dtype: str) -> adt.GlobalTypeVar:
        """The data type of that name for a dtype."""
        return adt.definition(self.mod, self.get_name(canonical, dtype)).header

    def get_ctor(self, ty_name: Any, canonical: str, dtype: str) -> adt.Constructor:
        """A data type's constructor of that name for a dtype."""
        name = self.get_name(canonical, dtype)
        for each in adt.definition(self.mod, ty_name).constructors:
            if str(each.name_hint) == name:
                return each
        raise RelayError(f"the data type {ty_name} has no constructor {name}")


class TensorArrayOps:
    """Was what TensorFlow's importer made its tensor arrays of; refuses, since that is gone."""

    def __init__(self, *_args: Any) -> None:
        raise RelayError(
            "tensor arrays of the builder went with TensorFlow's importer; a text that defines "
            "them is evaluated by relay.parse, and a list of tensors of one shape is a List"
        )


class StaticTensorArrayOps(TensorArrayOps):
    """As `TensorArrayOps`."""
