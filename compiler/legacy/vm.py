"""`tvm.runtime.vm` with the virtual machine of Relay's executables beside that of Relax's."""

from __future__ import annotations

from typing import Any

import tvm.runtime.vm

from .patches import Patches

_new_machine = tvm.runtime.vm.VirtualMachine


class _AnyMachine(type):
    """Makes the machine that fits what it is to run."""

    def __call__(cls, rt_mod: Any, *args: Any, **kwargs: Any) -> Any:
        from ..relay import vm
        from ..runtime.factory import FactoryModule

        if isinstance(rt_mod, (vm.Executable, vm.SavedExecutable, FactoryModule)):
            return vm.VirtualMachine(rt_mod, *args, **kwargs)
        return _new_machine(rt_mod, *args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        from ..relay import vm

        return isinstance(instance, (vm.VirtualMachine, _new_machine))

    def __getattr__(cls, name: str) -> Any:
        return getattr(_new_machine, name)


class VirtualMachine(metaclass=_AnyMachine):
    """`VirtualMachine(executable, device)`: of `relay.vm.compile`, or of Relax."""


def _of_vm(name: str) -> Any:
    if name == "build":  # of Relax, whose module for it was relax.vm
        return tvm.relax.build
    if name != "Executable":
        raise AttributeError(f"module 'tvm.runtime.vm' has no attribute {name!r}")
    return Executable


class _AnyExecutable(type):
    """An executable of a library; `isinstance` knows those that are compiled, too."""

    def __call__(cls, mod: Any) -> Any:
        from ..relay import vm

        return vm.executable_of(mod)

    def __instancecheck__(cls, instance: Any) -> bool:
        from ..relay import vm

        return isinstance(instance, (vm.Executable, vm.SavedExecutable))

    def __getattr__(cls, name: str) -> Any:
        from ..relay import vm

        return getattr(vm.Executable, name)


class Executable(metaclass=_AnyExecutable):
    """`Executable(library)`: of a file that `executable.mod.export_library` wrote."""


def patch(patches: Patches) -> None:
    """Let `tvm.runtime.vm` have Relay's executables."""
    patches.set(tvm.runtime.vm, "__getattr__", _of_vm)


def change(patches: Patches) -> None:
    """Let `tvm.runtime.vm` run what `relay.vm.compile` returns."""
    patches.set(tvm.runtime.vm, "VirtualMachine", VirtualMachine)
