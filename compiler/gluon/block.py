"""`Block`: a network or a part of one, with parameters and children."""

from __future__ import annotations

import os
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compiler.errors import BlockArgumentError, BlockError, BlockTypeError

from . import initializer
from .device import Device
from .files import read_arrays, write_arrays
from .ndarray import ndarray
from .parameter import Parameter


class HookHandle:
    """A registered hook; `detach` removes it, as leaving a `with` block does."""

    def __init__(self, hooks: dict[int, Any], key: int) -> None:
        self._hooks = hooks
        self._key = key

    def detach(self) -> None:
        """Remove the hook."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


class Block:
    """Base of all networks; `forward` is what kinds of it define.

    A parameter or block assigned to an attribute belongs to the block, under the attribute's
    name: `net.dense.weight` is the parameter "dense.weight" of `net`.
    """

    _children: OrderedDict[str, Block]
    _reg_params: dict[str, Parameter]

    def __init__(self) -> None:
        object.__setattr__(self, "_children", OrderedDict())
        object.__setattr__(self, "_reg_params", {})
        self._forward_hooks: dict[int, Any] = {}
        self._forward_pre_hooks: dict[int, Any] = {}
        self._hooks_made = 0

    def __repr__(self) -> str:
        lines = [
            f"  ({name}): " + repr(child).replace("\n", "\n  ")
            for name, child in self._children.items()
        ]
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"

    def __setattr__(self, name: str, value: Any) -> None:
        if "_reg_params" not in self.__dict__:
            if isinstance(value, (Block, Parameter)):
                raise BlockError(f"{type(self).__name__}: call super().__init__() first")
            object.__setattr__(self, name, value)
            return
        held = getattr(self, name, None)
        if isinstance(held, (Parameter, Block)) and not isinstance(value, type(held)):
            kinds = Parameter if isinstance(held, Parameter) else Block
            if not isinstance(value, kinds):
                raise BlockTypeError(
                    f"attribute {name!r} of {type(self).__name__} is a {type(held).__name__} and "
                    f"can't become a {type(value).__name__}"
                )
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            if name in self._reg_params and self._reg_params[name] is not value:
                self._parameter_replaced(name)
            self._reg_params[name] = value
            value.rename(name)
        elif isinstance(value, (list, tuple, dict)) and not name.startswith("_"):
            self._warn_of_hidden_blocks(name, value)
        object.__setattr__(self, name, value)

    def _parameter_replaced(self, name: str) -> None:
        """What replacing a parameter leads to; traced blocks forget their trace."""

    def _warn_of_hidden_blocks(self, name: str, value: Any) -> None:
        items = value.values() if isinstance(value, dict) else value
        if any(isinstance(item, Block) and item not in self._children.values() for item in items):
            warnings.warn(
                f"{type(self).__name__}.{name} is a {type(value).__name__} with blocks that are "
                "not registered as children; their parameters are not collected. Use "
                "register_child() or nn.Sequential",
                stacklevel=3,
            )

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make a block a child."""
        self._children[str(len(self._children)) if name is None else name] = block

    @property
    def params(self) -> dict[str, Parameter]:
        """The block's own parameters, by attribute."""
        return self._reg_params

    def collect_params(self, select: str | None = None) -> dict[str, Parameter]:
        """Parameters of the block and its children by structural name.

        Parameters
        ----------
        select : str, optional
            A regular expression; names must match it from their start, e.g. "fc1.*|.*bias".
        """
        found = self._collect("")
        if select is None:
            return found
        pattern = re.compile(select)
        return {name: param for name, param in found.items() if pattern.match(name)}

    def _collect(self, prefix: str) -> dict[str, Parameter]:
        found = {prefix + name: param for name, param in self._reg_params.items()}
        for name, child in self._children.items():
            found.update(child._collect(f"{prefix}{name}."))
        return found

    def initialize(
        self,
        init: Any = None,
        device: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
        ctx: Any = None,
    ) -> None:
        """Give all parameters their initial values, or note to do so when shapes are known."""
        chosen = initializer.Uniform() if init is None else initializer.create(init)
        for name, param in self.collect_params().items():
            if verbose:
                print(f"{name}: {param.init or chosen!r}")
            place = device if device is not None else ctx
            param.initialize(None, place, chosen, force_reinit=force_reinit)

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Call a function on every child, then on the block; returns the block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def hybridize(self, active: bool = True, **flags: Any) -> None:
        """Hybridise every hybrid block among the children; see `HybridBlock.hybridize`."""
        for child in self._children.values():
            child.hybridize(active, **flags)

    def cast(self, dtype: Any) -> None:
        """Change the dtype of the parameters."""
        for child in self._children.values():
            child.cast(dtype)
        for param in self._reg_params.values():
            param.cast(dtype)

    def zero_grad(self) -> None:
        """There are no gradients."""

    def reset_device(self, device: Any) -> None:
        """Move the parameters to other devices."""
        for param in {id(p): p for p in self.collect_params().values()}.values():
            param.reset_device(device)

    reset_ctx = reset_device

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of all parameters, e.g. ("grad_req", "null")."""
        for param in self.collect_params().values():
            setattr(param, name, value)

    def share_parameters(self, shared: Mapping[str, Parameter]) -> Block:
        """Use the given parameters in place of the block's own of the same names."""
        self._share(dict(shared), "")
        return self

    def _share(self, shared: dict[str, Parameter], prefix: str) -> None:
        for name in list(self._reg_params):
            if prefix + name in shared:
                setattr(self, name, shared[prefix + name])
        for name, child in self._children.items():
            child._share(shared, f"{prefix}{name}.")

    # Parameter files.

    def save_parameters(self, filename: str | os.PathLike[str], deduplicate: bool = False) -> None:
        """Write the parameters by structural name.

        Parameters
        ----------
        filename : path
            Ending in `.safetensors`, or anything else: MXNet 2.0's format, which is numpy's.
        deduplicate : bool
            Write a parameter that has several names once, under the first.
        """
        arrays: dict[str, np.ndarray] = {}
        seen: set[int] = set()
        for name, param in self.collect_params().items():
            if deduplicate and id(param) in seen:
                continue
            seen.add(id(param))
            arrays[name] = param.list_data()[0].asnumpy()
        write_arrays(filename, arrays)

    def load_parameters(
        self,
        filename: str | os.PathLike[str],
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
        ctx: Any = None,
    ) -> None:
        """Read parameters by structural name; the block need not be initialised.

        Parameters
        ----------
        filename : path
            `.params` of any MXNet version, `.npz` or `.safetensors`.
        device, ctx : Device or list of Device, optional
            Where to; by default where the parameters are.
        allow_missing, ignore_extra : bool
            Whether the file may lack parameters, or have others.
        cast_dtype : bool
            Whether dtypes may differ.
        dtype_source : str
            "current" keeps the parameter's dtype, "saved" takes the file's.

        Raises
        ------
        FrontendError
            The file can't be read.
        BlockArgumentError
            Names, shapes or dtypes do not fit.
        """
        arrays = read_arrays(filename)
        if not isinstance(arrays, Mapping):
            raise BlockArgumentError(f"the file {os.fspath(filename)!r} has no names")
        self.load_dict(
            {name.removeprefix("arg:").removeprefix("aux:"): a for name, a in arrays.items()},
            device if device is not None else ctx,
            allow_missing,
            ignore_extra,
            cast_dtype,
            dtype_source,
            source=f"file {os.fspath(filename)!r}",
        )

    def load_dict(
        self,
        param_dict: Mapping[str, Any],
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
        source: str = "dict",
    ) -> None:
        """Take parameters from a dict; arguments as for `load_parameters`."""
        if dtype_source not in ("current", "saved"):
            raise BlockArgumentError(f"dtype_source {dtype_source!r}; it is 'current' or 'saved'")
        params = self.collect_params()
        given = {id(params[name]) for name in param_dict if name in params}
        missing = [n for n, p in params.items() if n not in param_dict and id(p) not in given]
        if missing and not allow_missing:
            raise BlockArgumentError(f"the {source} lacks the parameter {missing[0]!r}")
        extra = [name for name in param_dict if name not in params]
        if extra and not ignore_extra:
            raise BlockArgumentError(
                f"the {source} has {extra[0]!r}, which is not a parameter of the block; its "
                f"parameters are {list(params)[:20]}"
            )
        for name, param in params.items():
            if name in param_dict:
                value = param_dict[name]
                host = value.asnumpy() if isinstance(value, ndarray) else np.asarray(value)
                param.load(host, device, cast_dtype, dtype_source)

    # Calls.

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Have `hook(block, inputs, outputs)` called after every forward."""
        return self._hook(self._forward_hooks, hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Have `hook(block, inputs)` called before every forward."""
        return self._hook(self._forward_pre_hooks, hook)

    def _hook(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> HookHandle:
        self._hooks_made += 1
        hooks[self._hooks_made] = hook
        return HookHandle(hooks, self._hooks_made)

    def __call__(self, *args: Any) -> Any:
        """Run the hooks and `forward`."""
        for pre_hook in list(self._forward_pre_hooks.values()):
            pre_hook(self, args)
        result = self.forward(*args)
        for hook in list(self._forward_hooks.values()):
            hook(self, args, result)
        return result

    def forward(self, *args: Any) -> Any:
        """What the block computes."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def summary(self, *inputs: Any) -> None:
        """Print each block's output shape and number of parameters, for given inputs.

        Raises
        ------
        BlockError
            The block is hybridised: its children are not called one by one then.
        """
        from .summary import print_summary

        print_summary(self, inputs)

    def devices(self) -> list[Device]:
        """The devices of the parameters."""
        found = (d for param in self.collect_params().values() for d in param.list_device())
        return list(dict.fromkeys(found))
