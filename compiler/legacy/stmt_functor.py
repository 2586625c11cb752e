"""`tvm.tir.stmt_functor`: visiting and changing statements by functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm_ffi

from ..errors import ScheduleError

__all__ = ["ir_transform", "post_order_visit", "pre_order_visit", "substitute"]


def post_order_visit(stmt: Any, fvisit: Callable[[Any], None]) -> None:
    """Call a function with every node, the parts before the whole; each node once."""
    seen: set[int] = set()

    def visit(node: tvm_ffi.Object) -> None:
        if node.__chandle__() not in seen:
            seen.add(node.__chandle__())
            fvisit(node)

    tvm_ffi.structural_walk(stmt, (tvm_ffi.Object, visit))


def pre_order_visit(stmt: Any, fvisit: Callable[[Any], bool]) -> None:
    """Call a function with every node, the whole first; its parts follow if it says True."""

    def visit(node: tvm_ffi.Object) -> Any:
        return None if fvisit(node) else tvm_ffi.WalkResult.SKIP

    tvm_ffi.structural_walk(stmt, (tvm_ffi.Object, visit), order="pre")


def ir_transform(
    stmt: Any,
    preorder: None,
    postorder: Callable[[Any], Any] | None,
    only_enable: Sequence[str] | None = None,
) -> Any:
    """Replace nodes by what functions return for them; None keeps a node.

    `preorder`: None: nodes are asked for after their parts. `postorder`: asked after them.
    `only_enable`: names of the node types to ask for ("tir.For"); all by default.
    Raises ScheduleError: a function for `preorder`.
    """
    if preorder is not None:
        raise ScheduleError("tir.stmt_functor.ir_transform: only postorder functions are called")
    # Types moved between packages: "tir.For", "FloatImm".
    names = {str(name).rpartition(".")[2] for name in only_enable or ()}

    def asked(node: Any) -> bool:
        key = str(type(node).__tvm_ffi_type_info__.type_key)
        return not names or key.rpartition(".")[2] in names

    def after(node: tvm_ffi.Object) -> Any:
        new = postorder(node) if postorder is not None and asked(node) else None
        return node if new is None else new

    return tvm_ffi.structural_map(stmt, (tvm_ffi.Object, after))


def substitute(node: Any, vmap: Mapping[Any, Any]) -> Any:
    """A statement or expression with variables replaced."""
    from .te.dataflow import substitute

    return substitute(node, dict(vmap))
