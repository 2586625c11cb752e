"""`Block`: a network or a part of one, with parameters and children."""

from __future__ import annotations

import os
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from compiler.errors import BlockError, BlockTypeError
from compiler.support.nearest import nearest

from ..array.program import Flags, require_bool
from ..device import Device
from .parameter import Parameter
from .parameter_dict import ParameterDict


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


def _blocks_in(value: Any) -> Iterator[Block]:
    """The blocks in nested lists, tuples and dicts."""
    if isinstance(value, Block):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _blocks_in(item)


class Block:
    """Base class of networks; subclasses define `forward`.

    A parameter or block assigned to an attribute belongs to the block, under the attribute's
    name: `net.dense.weight` is the parameter "dense.weight" of `net`.

    Parameters
    ----------
    prefix : str, optional
        MXNet 1.x's: what the block is called. Parameters have the names above in any case.
    params : mapping of str to Parameter, optional
        Parameters to be used in place of the block's own of the same names.
    """

    _children: OrderedDict[str, Block]
    _reg_params: ParameterDict

    def __init__(
        self, prefix: str | None = None, params: Mapping[str, Parameter] | None = None
    ) -> None:
        object.__setattr__(self, "_children", OrderedDict())
        object.__setattr__(self, "_reg_params", ParameterDict(shared=params))
        self._prefix = prefix
        self._forward_hooks: dict[int, Any] = {}
        self._forward_pre_hooks: dict[int, Any] = {}
        self._hooks_made = 0
        self._warned_of: set[str] = set()

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
            value = self._register_parameter(name, value)
        elif isinstance(value, (list, tuple, dict)) and not name.startswith("_"):
            self._warn_of_hidden_blocks(name, value)
        object.__setattr__(self, name, value)

    def _register_parameter(self, name: str, value: Parameter) -> Parameter:
        """Make a parameter one of the block's own, or the shared one that takes its place."""
        own = self._reg_params
        made = [key for key, param in own.items() if param is value and key not in self.__dict__]
        for key in made:  # by `params.get`, perhaps under another name
            del own[key]
        value = own.shared.get(name, value)
        if name in own and own[name] is not value:
            self._parameter_replaced(name)
        own[name] = value
        value.rename(name)
        return value

    def _parameter_replaced(self, name: str) -> None:
        """Called after a parameter was replaced; hybrid blocks drop their trace."""

    def _warn_of_hidden_blocks(self, name: str, value: Any) -> None:
        known = self._children.values()
        if name in self._warned_of or all(block in known for block in _blocks_in(value)):
            return
        self._warned_of.add(name)
        warnings.warn(
            f"{type(self).__name__}.{name} is a {type(value).__name__} with blocks that are "
            "not registered as children; their parameters are not collected. Use "
            "register_child() or nn.Sequential",
            stacklevel=3,
        )

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make a block a child."""
        label = str(len(self._children)) if name is None else name
        self._children[label] = block
        if self._reg_params.shared:
            block._share(self._reg_params.shared, f"{label}.")

    @property
    def params(self) -> ParameterDict:
        """The block's own parameters, by attribute; `params.get(name, shape=...)` makes one."""
        return self._reg_params

    @property
    def prefix(self) -> str:
        """Name prefix of MXNet 1.x; parameters are named after attributes instead."""
        return f"{type(self).__name__.lower()}_" if self._prefix is None else self._prefix

    @property
    def name(self) -> str:
        """`prefix` without its underscore."""
        return self.prefix.removesuffix("_")

    @contextmanager
    def name_scope(self) -> Iterator[Block]:
        """A context without effect: parameters are named after attributes."""
        yield self

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Parameters of the block and its children by structural name.

        Parameters
        ----------
        select : str, optional
            A regular expression; names must match it from their start, e.g. "fc1.*|.*bias".
        """
        found = ParameterDict()
        pattern = re.compile(select or "")
        found.update((n, param) for n, param in self._collect("").items() if pattern.match(n))
        return found

    def _collect(self, prefix: str) -> dict[str, Parameter]:
        for name, value in self.__dict__.items():
            if isinstance(value, (list, tuple, dict)) and not name.startswith("_"):
                self._warn_of_hidden_blocks(name, value)
        found = {prefix + name: param for name, param in self._reg_params.items()}
        for name, child in self._children.items():
            found.update(child._collect(f"{prefix}{name}."))
        return found

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        """`ParameterDict.initialize` of all parameters: `init`, `device`, `force_reinit`, ..."""
        self.collect_params().initialize(*args, **kwargs)

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Call a function on every child, then on the block; returns the block."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def hybridize(self, active: bool = True, **flags: Any) -> None:
        """Hybridize every hybrid block among the children; see `HybridBlock.hybridize`."""
        require_bool("active", active)
        if "backend" not in flags:  # else the rest may be options of it
            names = [each.name for each in fields(Flags)]
            for name in flags.keys() - set(names):
                raise BlockTypeError(
                    f"{type(self).__name__}.hybridize has no flag {name!r}{nearest(name, names)}"
                )
            Flags(**flags).check()
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

    def reset_device(self, device: Any = None, ctx: Any = None) -> None:
        """Move the parameters to other devices."""
        self.collect_params().reset_device(device, ctx)

    reset_ctx = reset_device

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of all parameters, e.g. ("grad_req", "null")."""
        self.collect_params().setattr(name, value)

    def share_parameters(self, shared: Mapping[str, Parameter]) -> Block:
        """Use the given parameters in place of the block's own of the same names."""
        self._share(dict(shared), "")
        return self

    def _share(self, shared: Mapping[str, Parameter], prefix: str) -> None:
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
        params = self.collect_params()
        first = {id(param): name for name, param in reversed(params.items())}
        wanted = [n for n, param in params.items() if not deduplicate or first[id(param)] == n]
        params.save(filename, names=wanted)

    def load_parameters(
        self,
        filename: str | os.PathLike[str],
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Read parameters by structural name; the block need not be initialized.

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
        params = self.collect_params()
        params.load(filename, device, allow_missing, ignore_extra, "", *args, **kwargs)

    def load_dict(self, param_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        """Take parameters from a dict; arguments as for `load_parameters`."""
        self.collect_params().set_values(param_dict, *args, **kwargs)

    def save(self, prefix: str) -> None:
        """Write the parameters to `<prefix>-model.params`; blocks are Python code, which stays so.

        `load` reads them into a block made by the same code; HybridBlock's `export` writes the
        program too.
        """
        self.save_parameters(f"{prefix}-model.params")

    def load(self, prefix: str) -> None:
        """Read what `save` wrote, or the parameters that MXNet's `save` wrote by these names.

        Raises FrontendError and BlockArgumentError as `load_parameters` does.
        """
        self.load_parameters(f"{prefix}-model.params")

    # Calls.

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Have `hook(block, inputs, outputs)` called after every forward."""
        return self._hook(self._forward_hooks, hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Have `hook(block, inputs)` called before every forward."""
        return self._hook(self._forward_pre_hooks, hook)

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Raise BlockError: what single operators compute is shown by the debug executor."""
        raise BlockError(
            "there are no hooks of operators; compiler.runtime.debugger shows what each kernel "
            "of a library computes"
        )

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
        """Compute the outputs from the inputs."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def summary(self, *inputs: Any) -> None:
        """Print each block's output shape and number of parameters, for given inputs.

        Raises
        ------
        BlockError
            The block is hybridized: its children are not called one by one then.
        """
        from .summary import print_summary

        print_summary(self, inputs)

    def devices(self) -> list[Device]:
        """The devices of the parameters."""
        return self.collect_params().list_device()
