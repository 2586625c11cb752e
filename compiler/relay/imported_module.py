"""Imported modules: Relay operators for users and tools, Relax operators for the build."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from .relax_to_relay import from_relax
from .ty import tensor_types


class ImportedModule(tvm.IRModule):
    """The Relay view of an imported Relax module, next to that module.

    Passes return plain modules, which `relay.build` lowers to Relax operators. It builds an
    unmodified view directly from the Relax module, without a round trip through Relay, if every
    extent is a number or a symbol. Lowering the Relay view infers and checks the other extents,
    which are expressions of symbols or unknown at compile time.

    `relax_module`: imported functions in Relax operators.
    """

    def __init__(self, relax_module: tvm.IRModule) -> None:
        view = from_relax(relax_module)
        super().__init__(dict(view.functions_items()), view.attrs, view.global_infos)
        self._relax_module = relax_module if _has_plain_extents(relax_module) else None
        self._view = dict(view.functions_items())

    def relax_module(self) -> tvm.IRModule | None:
        """The imported Relax module; None if the Relay view has to be lowered."""
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


def _has_plain_extents(mod: tvm.IRModule) -> bool:
    """Whether all extents in all functions are numbers or symbols."""
    return all(
        isinstance(ty.shape, relax.ShapeExpr)
        and all(isinstance(extent, (tirx.IntImm, tirx.Var)) for extent in ty.shape.values)
        for _, function in mod.functions_items()
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr)
        for block in function.body.blocks
        for binding in block.bindings
        for ty in tensor_types(binding.var.ty)
    )
