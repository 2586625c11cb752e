"""TVMScript of TVM 0.8 to 0.19: `T.block` (now `T.sblock`) and related names.

Blocks of TVM 0.8 to 0.10 are rewritten to today's before the text is parsed:

    with tir.block([n, tir.reduce_axis(0, m)], "B") as [vi, vk]:
        tir.bind(vi, i)

is `with T.block("B"): vi = T.axis.spatial(n, i); vk = T.axis.reduce((0, m), k)`, and a `T.init()`
below loops of its block comes before them.

Relax was printed with `out_dtype="void"` where an operator's result has its operands' type.
"""

from __future__ import annotations

import ast
import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, s_tir
from tvm.error import DiagnosticError
from tvm.script import relax as relax_script
from tvm.script.parser.core import doc, entry
from tvm.script.parser.core.diagnostics import Source
from tvm.script.parser.ir import entry as module_entry
from tvm.tirx import script
from tvm.tirx.script import parser as text_script
from tvm.tirx.script.builder.ir import DtypeConstructor
from tvm.tirx.script.parser import entry as function_entry
from tvm.tirx.script.parser import parser

from .patches import Patches

_AXES = {"reduce_axis": "reduce", "scan_axis": "scan", "opaque_axis": "opaque", "range": "spatial"}


def _called(node: ast.AST) -> str:
    """Last name of what a call calls: "block" of `T.block(...)`; "" for other nodes."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.func.attr if is_call else ""  # type: ignore[attr-defined]


def _bound(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """Variable and value of `T.bind(v, value)`."""
    if isinstance(statement, ast.Expr) and _called(statement.value) == "bind":
        args = statement.value.args  # type: ignore[attr-defined]
        if len(args) == 2 and isinstance(args[0], ast.Name):
            return args[0].id, args[1]
    return None


class OldBlocks(ast.NodeTransformer):
    """Rewrites the blocks of a function; positions are those of the old text."""

    def __init__(self) -> None:
        self._loops: list[str] = []

    def visit_For(self, node: ast.For) -> ast.AST:
        targets = getattr(node.target, "elts", [node.target])
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        self._loops += names
        self.generic_visit(node)
        del self._loops[len(self._loops) - len(names) :]
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        loops, call = self._loops, node.items[0].context_expr
        if _called(call) not in ("block", "sblock"):
            return self.generic_visit(node)
        if call.args and isinstance(call.args[0], (ast.List, ast.Tuple)):  # type: ignore[attr-defined]
            self._to_axes(node, call)
        self._loops = []
        self.generic_visit(node)
        self._loops = loops
        node.body = [each for statement in node.body for each in _with_inits_first(statement)]
        return node

    def _to_axes(self, node: ast.With, call: Any) -> None:
        domains, dialect = call.args[0].elts, call.func.value
        variables = node.items[0].optional_vars
        names = getattr(variables, "elts", [variables] if variables else [])
        bindings = dict(filter(None, map(_bound, node.body)))
        loops = self._loops[len(self._loops) - len(names) :]
        axes: list[ast.stmt] = []
        for place, (name, domain) in enumerate(zip(names, domains)):
            default = ast.Name(loops[place], ast.Load()) if len(loops) == len(names) else domain
            kind, args = _AXES.get(_called(domain)), getattr(domain, "args", [])
            if kind is not None:
                domain = ast.Tuple(list(args), ast.Load()) if len(args) > 1 else args[0]
            axis = ast.Attribute(ast.Attribute(dialect, "axis", ast.Load()), kind or "spatial")
            axis.ctx = ast.Load()
            value = ast.Call(axis, [domain, bindings.get(name.id, default)], [])
            axes.append(ast.Assign([ast.Name(name.id, ast.Store())], value))
        node.body = [*axes, *(each for each in node.body if _bound(each) is None)]
        node.items[0].optional_vars = None
        call.args = call.args[1:]
        for axis_statement in axes:
            ast.copy_location(axis_statement, node)
            ast.fix_missing_locations(axis_statement)


class _Inits(ast.NodeTransformer):
    """Takes `with T.init():` out of loops."""

    def __init__(self) -> None:
        self.found: list[ast.stmt] = []

    def visit_With(self, node: ast.With) -> ast.AST:
        called = _called(node.items[0].context_expr)
        if called == "init":
            self.found.append(node)
            return ast.copy_location(ast.Pass(), node)
        return node if called in ("block", "sblock") else self.generic_visit(node)


def _with_inits_first(statement: ast.stmt) -> list[ast.stmt]:
    if not isinstance(statement, ast.For):
        return [statement]
    inits = _Inits()
    inits.visit(statement)
    return [*inits.found, statement]


_logger = logging.getLogger("baton.legacy")

# What functions of a script's own are written in, and those in a text (`tvm.script.from_source`).
_SCRIPTS = (script, text_script)
_RENAMED = {"block": "sblock", "block_attr": "sblock_attr", "ret": "Return"}


_new_blockize = s_tir.Schedule.blockize


def _blockize(
    self: Any, target: Any = None, preserve_unit_iters: bool = True, *, loop: Any = None
) -> Any:
    """A block of what is below a loop; `loop` is `target` as TVM 0.10 spelled it."""
    return _new_blockize(self, loop if target is None else target, preserve_unit_iters)


def patch(patches: Patches) -> None:
    """Let functions be written, and blocks of schedules be found, by the old names."""
    for owner in _SCRIPTS:
        for old, name in _RENAMED.items():
            if hasattr(owner, name):
                patches.add(owner, old, getattr(owner, name))
    patches.add(s_tir.Schedule, "get_block", s_tir.Schedule.get_sblock)


_annotation = parser.find_decorator_annotation


def _annotation_of_old(node: Any, annotation: str, default: bool = True) -> bool:
    """What a decorator says; a bare `@T.prim_func` is a function with blocks."""
    return _annotation(node, annotation, default or annotation == "s_tir")


_new_func_attr = script.func_attr


def _func_attr(attrs: Mapping[str, Any]) -> Any:
    """A function's attributes; `tir.noalias` is `tirx.noalias` today."""
    return _new_func_attr({re.sub(r"^tir\.", "tirx.", name): attrs[name] for name in attrs})


_new_scalar = DtypeConstructor.__call__


def _scalar(self: Any, expr: Any = None, is_size_var: bool = False) -> Any:
    """A scalar of a dtype; a variable of sizes is one like all others today."""
    del is_size_var
    return _new_scalar(self, expr)


_WITH_OUT_DTYPE = [
    (relax_script, "matmul"),
    *((relax.op.nn, f"conv{n}d{kind}") for n in (1, 2, 3) for kind in ("", "_transpose")),
]


def _without_void(operator: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that takes `out_dtype="void"` for none given."""

    @functools.wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        if str(kwargs.get("out_dtype")) in ("void", ""):
            del kwargs["out_dtype"]
        return operator(*args, **kwargs)

    return call


def _as_ast(self: Source) -> Any:
    """The parsed source, with the blocks of TVM 0.8 to 0.10 as they are written today."""
    return doc.to_doc(OldBlocks().visit(ast.parse(self.source)))


_new_parse = entry.parse


def _parse(program: Any, extra_vars: Any = None, check_well_formed: bool = True, **of: Any) -> Any:
    """`parse`, which warns of programs that are not well-formed: TVM 0.8 to 0.13 took them."""
    try:
        return _new_parse(program, extra_vars, check_well_formed, **of)
    except DiagnosticError as error:
        if not check_well_formed or "is not well-formed" not in str(error):
            raise
        _logger.warning("TVMScript: %s", error)
    return _new_parse(program, extra_vars, False, **of)


def change(patches: Patches) -> None:
    """Have `T.prim_func` make functions with blocks, and `T.alloc_buffer` allocate for them."""
    for owner, name in _WITH_OUT_DTYPE:
        patches.set(owner, name, _without_void(getattr(owner, name)))
    patches.set(Source, "as_ast", _as_ast)
    for owner in (entry, module_entry, function_entry):
        patches.set(owner, "parse", _parse)
    patches.set(DtypeConstructor, "__call__", _scalar)
    patches.set(s_tir.Schedule, "blockize", _blockize)
    for owner in _SCRIPTS:
        patches.set(owner, "func_attr", _func_attr)
        patches.set(owner, "alloc_buffer", script.sblock_alloc_buffer)
    patches.set(parser, "find_decorator_annotation", _annotation_of_old)
