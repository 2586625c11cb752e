"""`relay.prelude`: lists, options, trees and functions from `std/`, evaluated at compile time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import tvm

from ..errors import RelayError
from . import adt, tensor_arrays
from .adt_eval import add_text

_FUNCTIONS = (
    *("id", "compose", "flip", "iterate"),
    *("hd", "tl", "nth", "update", "length", "map", "foldl", "foldr", "foldr1", "sum"),
    *("concat", "filter", "zip", "rev", "map_accuml", "map_accumr", "unfoldl", "unfoldr"),
    *("tmap", "size"),
)


_DTYPES = ["float32", "float16", "float64", "int32", "uint8", "int8", "int16", "uint16", "int64"]
"""Dtypes whose tensor array types are in every prelude; the functions are added on first use."""


@functools.cache
def _text(name: str) -> str:
    file = resources.files(__package__) / "std" / name
    if not name.endswith(".rly") or "/" in name or not file.is_file():
        raise RelayError(f"there are definitions core, prelude and nat.rly, none in {name!r}")
    return file.read_text()


def import_from_std(mod: tvm.IRModule, name: str) -> None:
    """Add "prelude.rly", "nat.rly" or "core.rly" to a module in place; RelayError for others."""
    add_text(mod, _text(name), name)


class Prelude:
    """Standard definitions, added to `mod` in place; functions are attributes: `prelude.map`."""

    def __init__(self, mod: tvm.IRModule | None = None) -> None:
        self.mod = tvm.IRModule() if mod is None else mod
        import_from_std(self.mod, "prelude.rly")
        for name in _FUNCTIONS:
            setattr(self, name, self.mod.get_global_var(name))
        for dtype in _DTYPES:
            _define_type(self.mod, f"tensor_{dtype}_t", tensor_arrays.text_of_rank_type, dtype)

    def get_name(self, canonical: str, dtype: str) -> str:
        """Name of a tensor array definition for a dtype."""
        return f"tensor_{dtype}_t" if canonical == "tensor_t" else f"{canonical}_{dtype}"

    def get_global_var(self, canonical: str, dtype: str) -> tvm.ir.GlobalVar:
        """Look up a function by name and dtype."""
        TensorArrayOps(self, dtype).register()
        return self.mod.get_global_var(self.get_name(canonical, dtype))

    get_var = get_global_var

    def get_type(self, canonical: str, dtype: str) -> adt.GlobalTypeVar:
        """Look up a data type by name and dtype."""
        TensorArrayOps(self, dtype).register()
        return adt.definition(self.mod, self.get_name(canonical, dtype)).header

    def get_ctor(self, ty_name: Any, canonical: str, dtype: str) -> adt.Constructor:
        """Look up a constructor of a data type by name and dtype."""
        TensorArrayOps(self, dtype).register()
        return _constructor(self.mod, ty_name, self.get_name(canonical, dtype))

    def get_tensor_ctor(self, canonical: str, dtype: str) -> adt.Constructor:
        """Look up the constructor of tensors of a rank: `get_tensor_ctor("tensor2", "float32")`."""
        return self.get_ctor(self.get_type("tensor_t", dtype), canonical, dtype)

    def get_name_static(
        self, canonical: str, dtype: str, shape: Sequence[Any], batch_dim: int | None = None
    ) -> str:
        """Name of a tensor array definition for a dtype and a shape."""
        return tensor_arrays.static_name(canonical, dtype, shape, batch_dim)

    def get_global_var_static(
        self, canonical: str, dtype: str, shape: Sequence[Any], batch_dim: int | None = None
    ) -> tvm.ir.GlobalVar:
        """Look up a function by name, dtype and shape."""
        return self.mod.get_global_var(self.get_name_static(canonical, dtype, shape, batch_dim))

    def get_type_static(
        self, canonical: str, dtype: str, shape: Sequence[Any]
    ) -> adt.GlobalTypeVar:
        """Look up a data type by name, dtype and shape."""
        return adt.definition(self.mod, self.get_name_static(canonical, dtype, shape)).header

    def get_ctor_static(
        self, ty_name: str, name: str, dtype: str, shape: Sequence[Any]
    ) -> adt.Constructor:
        """Look up a constructor of a data type by name, dtype and shape."""
        home = self.get_name_static(ty_name, dtype, shape)
        return _constructor(self.mod, home, self.get_name_static(name, dtype, shape))

    def get_tensor_ctor_static(
        self, name: str, dtype: str, shape: Sequence[Any]
    ) -> adt.Constructor:
        """Look up the constructor of tensors of a dtype and a shape."""
        return self.get_ctor_static("tensor_t", name, dtype, shape)


def _constructor(mod: tvm.IRModule, ty_name: Any, name: str) -> adt.Constructor:
    for each in adt.definition(mod, ty_name).constructors:
        if str(each.name_hint) == name:
            return each
    raise RelayError(f"the data type {ty_name} has no constructor {name}")


class TensorArrayOps:
    """Tensor arrays of a dtype and any shapes; `register()` or a prelude lookup adds them."""

    def __init__(self, prelude: Prelude, dtype: str) -> None:
        self.prelude = prelude
        self.dtype = dtype

    def register(self) -> None:
        """Add the definitions unless the module already has them."""
        mod, dtype = self.prelude.mod, self.dtype
        _define_type(mod, f"tensor_{dtype}_t", tensor_arrays.text_of_rank_type, dtype)
        if f"tensor_array_{dtype}" not in mod:
            add_text(mod, tensor_arrays.text_of_ranks(dtype), "tensor arrays")

    def get_global_var(self, canonical: str) -> tvm.ir.GlobalVar:
        """Look up a function by name."""
        return self.prelude.get_global_var(canonical, self.dtype)


class StaticTensorArrayOps:
    """Tensor arrays of a dtype and one tensor shape.

    `prelude`: `register()` adds the definitions to its module. `batch_dim`: 1 if stacked tensors
    have the leading extent 1 instead of any extent.
    """

    def __init__(
        self, prelude: Prelude, dtype: str, shape: Sequence[Any], batch_dim: int | None = None
    ) -> None:
        self.prelude = prelude
        self.dtype = dtype
        self.shape = list(shape)
        self.batch_dim = batch_dim

    def register(self) -> None:
        """Add the definitions unless the module already has them."""
        mod, dtype = self.prelude.mod, self.dtype
        beside = tensor_arrays.shapes_beside(self.shape, self.batch_dim)
        for shape in (self.shape, *beside):
            name = tensor_arrays.static_name("tensor_t", dtype, shape)
            _define_type(mod, name, tensor_arrays.text_of_type, dtype, shape)
        text = tensor_arrays.text_of_shape(dtype, self.shape, self.batch_dim)
        add_text(mod, text, "tensor arrays")

    def define_tensor_array_scatter(self, *_shapes: Any) -> None:
        """Same as `register`: scatter supports index tensors of any extents."""
        self.register()

    def define_tensor_array_split(self, *_shapes: Any) -> None:
        """Same as `register`: split supports length tensors of any extents."""
        self.register()

    def get_global_var(self, canonical: str) -> tvm.ir.GlobalVar:
        """Look up a function by name."""
        return self.prelude.get_global_var_static(canonical, self.dtype, self.shape, self.batch_dim)

    def get_type(self, canonical: str) -> adt.GlobalTypeVar:
        """Look up the data type by name."""
        return self.prelude.get_type_static(canonical, self.dtype, self.shape)

    def get_ctor(self, canonical: str) -> adt.Constructor:
        """Look up a constructor by name."""
        return self.prelude.get_ctor_static("tensor_t", canonical, self.dtype, self.shape)


def _define_type(mod: tvm.IRModule, name: str, text: Callable[..., str], *args: Any) -> None:
    """Define a data type from Relay text unless the module already has it."""
    if all(str(header.name_hint) != name for header in adt.type_definitions(mod)):
        add_text(mod, text(*args), "tensor arrays")
