"""Imported modules: Relay operators for users and tools, Relax operators for the build."""

from __future__ import annotations

import tvm

from .relax_to_relay import from_relax


class ImportedModule(tvm.IRModule):
    """The Relay view of an imported Relax module, next to that module.

    Passes return plain modules, which `relay.build` lowers to Relax operators. It builds an
    unmodified view directly from the Relax module, without a round trip through Relay.

    Parameters
    ----------
    relax_module : tvm.IRModule
        Imported functions in Relax operators.
    """

    def __init__(self, relax_module: tvm.IRModule) -> None:
        view = from_relax(relax_module)
        super().__init__(dict(view.functions_items()), view.attrs, view.global_infos)
        self._relax_module = relax_module
        self._view = dict(view.functions_items())

    def relax_module(self) -> tvm.IRModule | None:
        """The imported Relax module; None if a function has been replaced in place."""
        functions = dict(self.functions_items())
        if len(functions) != len(self._view):
            return None
        same = all(
            gvar in functions and functions[gvar].same_as(function)
            for gvar, function in self._view.items()
        )
        return self._relax_module if same else None


def imported_relax_module(mod: object) -> tvm.IRModule | None:
    """Relax module of an unmodified imported module; None for other modules."""
    return mod.relax_module() if isinstance(mod, ImportedModule) else None
