"""`ParameterDict`: parameters by name, and operations on all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from compiler.errors import BlockArgumentError

from .. import initializer
from ..array.files import read_arrays, write_arrays
from ..array.ndarray import ndarray
from ..device import Device
from .parameter import Constant, Parameter


class ParameterDict(dict[str, Parameter]):
    """Parameters by name, in order.

    Parameters
    ----------
    prefix : str
        Put before the names of parameters that `get` makes.
    shared : mapping of str to Parameter, optional
        Where `get` looks before it makes one.
    """

    def __init__(self, prefix: str = "", shared: Mapping[str, Parameter] | None = None) -> None:
        super().__init__()
        self.prefix = prefix
        self.shared = dict(shared or {})

    def __repr__(self) -> str:
        if not self.prefix:
            return super().__repr__()
        lines = "".join(f"  {name}: {param!r}\n" for name, param in self.items())
        return f"{self.prefix} (\n{lines})"

    __hash__ = object.__hash__  # type: ignore[assignment]

    def get(self, name: str, default: Any = None, **settings: Any) -> Any:
        """Return a parameter; with settings, such as `shape`, create a missing one.

        Parameters
        ----------
        name : str
            Without the prefix.
        default : object
            What is returned where there is none, and no settings are given.
        **settings
            As for `Parameter`. Of one that is there already, the shape must fit.

        Raises
        ------
        BlockArgumentError
            The parameter has another shape.
        """
        full = self.prefix + name
        if full not in self and full in self.shared:
            self[full] = self.shared[full]
        if full not in self:
            if not settings:
                return super().get(full, default)
            self[full] = Parameter(full, **settings)
        elif settings.get("shape") is not None:
            known, wanted = self[full].shape or (), settings["shape"]
            if len(known) == len(wanted):  # what is unknown of one may be known of the other
                wanted = [old if new in (0, -1) else new for old, new in zip(known, wanted)]
            self[full].shape = wanted
        return self[full]

    def get_constant(self, name: str, value: Any = None) -> Parameter:
        """The constant of that name; with a value, it is made where missing."""
        full = self.prefix + name
        if full not in self:
            if value is None:
                raise BlockArgumentError(f"there is no constant {full!r}; give a value for it")
            self[full] = Constant(value, full)
        return self[full]

    def initialize(
        self,
        init: Any = None,
        device: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
        ctx: Any = None,
    ) -> None:
        """Initialize all parameters, those of unknown shape later."""
        chosen = initializer.Uniform() if init is None else initializer.create(init)
        for name, param in self.items():
            if verbose:
                print(f"{name}: {param.init or chosen!r}")
            place = device if device is not None else ctx
            param.initialize(None, place, chosen, force_reinit=force_reinit)

    def reset_device(self, device: Any = None, ctx: Any = None) -> None:
        """Move them to other devices."""
        for param in {id(param): param for param in self.values()}.values():
            param.reset_device(device if device is not None else ctx)

    reset_ctx = reset_device

    def list_device(self) -> list[Device]:
        """The devices that they are on."""
        found = (device for param in self.values() for device in param.list_device())
        return list(dict.fromkeys(found))

    list_ctx = list_device

    def zero_grad(self) -> None:
        """There are no gradients."""

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of all, e.g. ("grad_req", "null")."""
        for param in self.values():
            setattr(param, name, value)

    def save(
        self,
        filename: str | os.PathLike[str],
        strip_prefix: str = "",
        names: Iterable[str] | None = None,
    ) -> None:
        """Write them by name.

        Parameters
        ----------
        filename : path
            Ending in `.safetensors`, or anything else: MXNet 2.0's format, which is numpy's.
        strip_prefix : str
            Taken from the names.
        names : iterable of str, optional
            Those to write, by default all.
        """
        arrays = {
            name.removeprefix(strip_prefix): self[name].list_data()[0].asnumpy()
            for name in (self if names is None else names)
        }
        write_arrays(filename, arrays)

    def load(
        self,
        filename: str | os.PathLike[str],
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
        ctx: Any = None,
    ) -> None:
        """Read values by name, `restore_prefix` before the file's; see `Block.load_parameters`."""
        where = f"file {os.fspath(filename)!r}"
        arrays = read_arrays(filename)
        if not isinstance(arrays, Mapping):
            raise BlockArgumentError(f"the {where} has no names")
        plain = {name.removeprefix("arg:").removeprefix("aux:"): a for name, a in arrays.items()}
        values = {restore_prefix + name: array for name, array in plain.items()}
        place = device if device is not None else ctx
        rest = allow_missing, ignore_extra, cast_dtype, dtype_source, where
        self.set_values(values, place, *rest)

    def set_values(
        self,
        values: Mapping[str, Any],
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
        source: str = "dict",
    ) -> None:
        """Set values by name; arguments as for `Block.load_parameters`."""
        if dtype_source not in ("current", "saved"):
            raise BlockArgumentError(f"dtype_source {dtype_source!r}; it is 'current' or 'saved'")
        given = {id(self[name]) for name in values if name in self}
        missing = [n for n, param in self.items() if n not in values and id(param) not in given]
        if missing and not allow_missing:
            raise BlockArgumentError(f"the {source} lacks the parameter {missing[0]!r}")
        extra = [name for name in values if name not in self]
        if extra and not ignore_extra:
            raise BlockArgumentError(
                f"the {source} has {extra[0]!r}, which is not a parameter of the block; its "
                f"parameters are {list(self)[:20]}"
            )
        for name, param in self.items():
            if name in values:
                value = values[name]
                host = value.asnumpy() if isinstance(value, ndarray) else np.asarray(value)
                param.load(host, device, cast_dtype, dtype_source)
