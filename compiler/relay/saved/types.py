"""Check variables and types of loaded modules: TVM's reader does not, and passes rely on it."""

from __future__ import annotations

import tvm
from tvm import relax

from ...errors import RelayTypeError
from ...ir.rewrite import relax_functions
from ..nested_expressions import handle, operands, post_order
from ..type_infer import infer_type_if_possible, is_untyped, type_of, type_of_parts

Scope = frozenset[int]
"""Handles of the variables in scope."""


def check_types(mod: tvm.IRModule) -> None:
    """Reject types that differ from those inferred from the parts; set those of untyped calls.

    Raises RelayTypeError: a type is inconsistent, or an undefined variable or function is used.
    """
    checker = _Checker({str(name.name_hint) for name in mod.get_global_vars()})
    for _, function in relax_functions(mod):
        checker.function(function, frozenset())


class _Checker:
    def __init__(self, functions: set[str]):
        self.functions = functions

    def function(self, function: relax.Function, scope: Scope) -> None:
        for param in function.params:
            _check_type(param.ty)
        self.expression(function.body, scope | {handle(param) for param in function.params})
        _agree(function.ret_ty, function.body.ty, "a function's result")

    def expression(self, root: relax.Expr, scope: Scope) -> None:
        for node in post_order(root, _below):
            if isinstance(node, tvm.ir.GlobalVar):
                if node.name_hint not in self.functions:
                    raise RelayTypeError(f"the module has no function {node.name_hint}")
            elif isinstance(node, relax.Var):
                if handle(node) not in scope:
                    raise RelayTypeError(f"variable {node.name} is used before it is defined")
            elif isinstance(node, relax.Function):
                self.function(node, scope)
            elif isinstance(node, relax.SeqExpr):
                self._sequence(node, scope)
            elif isinstance(node, relax.If):
                self.expression(node.true_branch, scope)
                self.expression(node.false_branch, scope)
            if isinstance(node, _OF_PARTS):
                infer_type_if_possible(node)
                _check_type(node.ty)
                _agree(node.ty, type_of_parts(node), type(node).__name__)

    def _sequence(self, sequence: relax.SeqExpr, scope: Scope) -> None:
        for block in sequence.blocks:
            for binding in block.bindings:
                self.expression(binding.value, scope)
                _check_type(binding.var.ty)
                if isinstance(binding, relax.VarBinding):
                    _agree(binding.var.ty, binding.value.ty, f"variable {binding.var.name}")
                scope |= {handle(binding.var)}
        self.expression(sequence.body, scope)


_OF_PARTS = (relax.Call, relax.Tuple, relax.TupleGetItem, relax.If, relax.SeqExpr)


def _below(node: relax.Expr) -> list[relax.Expr]:
    called = node.op if isinstance(node, relax.Call) else None
    return [*([called] if isinstance(called, relax.Expr) else []), *operands(node)]


def _check_type(ty: tvm.ir.Type) -> None:
    """Reject a tensor type whose shape does not match its rank."""
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            _check_type(field)
    elif isinstance(ty, relax.TensorType):
        shape = ty.shape
        if isinstance(shape, relax.ShapeExpr) and ty.ndim != len(shape.values):
            raise RelayTypeError(f"a tensor of {ty.ndim} axes has the shape {shape.values}")


def _agree(declared: tvm.ir.Type, found: tvm.ir.Type, what: str) -> None:
    if is_untyped(declared) or is_untyped(found):
        return
    unknown = relax.analysis.BaseCheckResult.FAIL_L2  # symbols may be equal
    results = [
        relax.analysis.type_base_check(*pair) for pair in ((declared, found), (found, declared))
    ]
    if max(map(int, results)) < unknown:
        raise RelayTypeError(f"{what} is said to be {type_of(declared)}, and is {type_of(found)}")
