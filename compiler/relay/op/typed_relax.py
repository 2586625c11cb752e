"""Relax operators whose calls are typed on creation: `op.add(x, y)` needs no `infer_type`."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tvm import relax

from ..type_infer import infer_type


class _TypedModule:
    """View of a module of Relax operators."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)

        def call(*args: Any, **kwargs: Any) -> relax.Expr:
            return infer_type(found(*args, **kwargs))

        made = _TypedModule(found) if isinstance(found, ModuleType) else call
        setattr(self, name, made)  # `op.add is op.add`
        return made


op = _TypedModule(relax.op)
