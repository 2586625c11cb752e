"""Old attribute names of expressions and modules, on the Relax objects that stand for them."""

from __future__ import annotations

import json
from typing import Any

import tvm
from tvm import relax

from .patches import Patches

_new_load_json = tvm.ir.load_json


def patch(patches: Patches) -> None:
    """Add `checked_type`, `name_hint`, `data`, `astext` and their kin."""
    patches.add(tvm.ir.Expr, "checked_type", property(lambda self: _known_type(self)))
    patches.add(tvm.ir.Expr, "_checked_type_", property(lambda self: self.ty))
    patches.add(relax.Var, "name_hint", property(lambda self: str(self.name)))
    patches.add(relax.Var, "type_annotation", property(lambda self: self.ty))
    patches.add(tvm.ir.GenericConst, "data", property(lambda self: self.value))
    patches.add(tvm.ir.TupleGetItem, "tuple_value", property(lambda self: self.tuple))
    patches.add(relax.TensorType, "concrete_shape", property(_concrete_shape))
    for owner in (tvm.IRModule, tvm.ir.Expr):
        patches.add(owner, "astext", _astext)
    patches.set(tvm.ir, "load_json", _load_json)


def _known_type(expr: Any) -> Any:
    if expr.ty is None or expr.ty.is_missing():
        raise ValueError(
            "the type checker has not run on this expression: apply relay.transform.InferType()"
        )
    return expr.ty


def _concrete_shape(self: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in self.shape)


def _astext(self: Any, show_meta_data: bool = True, annotate: Any = None) -> str:
    from ..relay.text import astext

    return astext(self, show_meta_data=show_meta_data)


def _load_json(json_str: str) -> Any:
    """Read what `tvm.ir.save_json` wrote, an old TVM's of a Relay module included."""
    try:
        graph = json.loads(json_str)
    except ValueError:
        graph = None
    if isinstance(graph, dict) and "b64ndarrays" in graph:
        from ..relay.saved import load_json

        return load_json(json_str)
    return _new_load_json(json_str)
