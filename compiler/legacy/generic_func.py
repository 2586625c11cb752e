"""`tvm.target.generic_func`: generic functions with per-target overrides."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tvm

from ..errors import TargetError
from .patches import Patches

Function = Callable[..., Any]
_named: dict[str, GenericFunc] = {}


class GenericFunc:
    """Calls what is registered for the current target: for the first of its keys that has one.

    `default`: called for targets without an override, and when no target is current.
    """

    def __init__(self, default: Function | None = None) -> None:
        self._default = default
        self._of_key: dict[str, Function] = {}
        if default is not None:
            functools.update_wrapper(self, default)

    def register(
        self, key: str | Sequence[str], func: Function | None = None, override: bool = True
    ) -> Any:
        """Register a function for targets of a key ("cuda", "gpu"); a decorator without `func`.

        Raises TargetError: a key has one, and `override` is off.
        """
        if func is None:
            return lambda each: self.register(key, each, override)
        for name in [key] if isinstance(key, str) else key:
            if name in self._of_key and not override:
                raise TargetError(f"a function is registered for {name!r}; give override=True")
            self._of_key[name] = func
        return func

    def set_default(self, func: Function, allow_override: bool = False) -> None:
        """Set the default function, used for targets without an override."""
        if self._default is not None and not allow_override:
            raise TargetError("there is a default already; give allow_override=True")
        self._default = func

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        target = tvm.target.Target.current(allow_none=True)
        keys = [] if target is None else [str(key) for key in target.keys]
        found = next((self._of_key[key] for key in keys if key in self._of_key), self._default)
        if found is None:
            raise TargetError(f"no function is registered for {target}, and there is no default")
        return found(*args, **kwargs)


def generic_func(fdefault: Function) -> GenericFunc:
    """Decorator: make this the default; `name.register("cuda")` overrides it for a target."""
    return GenericFunc(fdefault)


def get_native_generic_func(name: str) -> GenericFunc:
    """The function of a name; made at the first call."""
    return _named.setdefault(name, GenericFunc())


def override_native_generic_func(func_name: str) -> Callable[[Function], GenericFunc]:
    """A decorator: the function of a name has this one as its default from now on."""

    def decorate(fdefault: Function) -> GenericFunc:
        found = get_native_generic_func(func_name)
        found.set_default(fdefault, allow_override=True)
        return found

    return decorate


def patch(patches: Patches) -> None:
    """Let `tvm.target` have them."""
    for each in (GenericFunc, generic_func, get_native_generic_func, override_native_generic_func):
        patches.add(tvm.target, each.__name__, each)
