"""Convert modules between Relax operators and Relay operators; views of imported modules."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..backends import COMPILE_OPTIONS
from ..ir.constants import tensor_types
from ..ir.rewrite import relax_functions, with_functions
from ..ir.scopes import rebuilt
from ..ir.spans import in_place_of
from ..lowering.offloaded_functions import RELAY_FUNCTION
from .byoc import without_operators
from .nested_expressions import operands
from .op import registry
from .op.raising import rule_for
from .relay_to_relax import in_dataflow
from .type_infer import set_type

_handle = tvm_ffi.Object.__hash__


def from_relax(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace Relax operators with Relay operators, as Relay's importers return them.

    Variables, functions and results are unchanged. Relax constructs without a Relay equivalent
    (dynamic extents, kernels, operators that Relay never had) are kept.

    `mod`: Relax functions at operator level.
    """
    registry.names()
    changed = {
        gvar: _Raising().function(without_operators(function))
        for gvar, function in relax_functions(mod)
    }
    return with_functions(mod, changed)


def to_relax(mod: tvm.IRModule) -> tvm.IRModule:
    """Replace Relay operators with Relax operators, for Relax tools.

    `relay.build` also starts with this step but simplifies more. Here only Relax's larger operators
    are restored: batched matmuls, GELU, SiLU. Modules without Relay operators are returned
    unchanged.

    Raises UnsupportedRelayOperatorError, RelayTypeError: a call is unsupported or does not fit its
    operands.
    """
    from ..ir.fold_constants import FoldConstant
    from ..ir.recognize_activations import RecognizeGelu, RecognizeSilu
    from ..ir.simplify import SimplifyExpr
    from .relay_to_relax import lower

    lowered = lower(mod)
    if lowered.same_as(mod):
        return mod
    passes = [FoldConstant(), SimplifyExpr(), RecognizeGelu(), RecognizeSilu()]
    return tvm.transform.Sequential(passes)(lowered)


def as_relay(mod: tvm.IRModule) -> tvm.IRModule:
    """Convert any operators to Relay's, with calls in dataflow blocks, as partitioners expect."""
    return from_relax(in_dataflow(mod))


def subgraphs_to_relay(mod: tvm.IRModule) -> tvm.IRModule:
    """Convert external subgraphs to Relay operators, which a backend's `compile` always sees."""
    own = {
        gvar: function
        for gvar, function in relax_functions(mod)
        if COMPILE_OPTIONS in (function.attrs or {}) and RELAY_FUNCTION not in function.attrs
    }
    if not own:
        return mod
    return with_functions(mod, dict(from_relax(tvm.IRModule(own)).functions))


def raised(call: relax.Call) -> relax.Expr | None:
    """Convert one Relax call to a nested Relay expression; None if there is no rule."""
    registry.names()
    rule = rule_for(call)
    return None if rule is None else rule(call, lambda expr: expr)


class _Raising:
    """Converts one function to Relay, binding by binding."""

    def __init__(self) -> None:
        self.values: dict[int, tuple[relax.Var, relax.Expr]] = {}

    def function(self, function: relax.Function) -> relax.Function:
        return rebuilt(function, self.sequence(function.body))

    def sequence(self, body: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [self._block(block) for block in body.blocks]
        return set_type(
            relax.SeqExpr(_without_unused(blocks, body.body), body.body, body.span), body.ty
        )

    def definition(self, expr: relax.Expr) -> relax.Expr:
        while isinstance(expr, relax.Var):
            found = self.values.get(_handle(expr))
            if found is None:
                return expr
            expr = found[1]
        return expr

    def _block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        dataflow = isinstance(block, relax.DataflowBlock)
        bindings: list[Any] = []
        for binding in block.bindings:
            if isinstance(binding, relax.VarBinding):
                self.values[_handle(binding.var)] = (binding.var, binding.value)
                bindings += self._binding(binding, dataflow)
            else:
                bindings.append(binding)
        return type(block)(bindings, block.span)

    def _binding(self, binding: relax.VarBinding, dataflow: bool) -> list[relax.VarBinding]:
        value = binding.value
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
            rule = rule_for(value)
            result = None if rule is None else rule(value, self.definition)
            if result is None:
                return [binding]
            return _bound(binding.var, in_place_of(value, result), dataflow)
        if isinstance(value, relax.If):
            made = set_type(
                relax.If(
                    value.cond,
                    self.sequence(value.true_branch),
                    self.sequence(value.false_branch),
                    value.span,
                ),
                value.ty,
            )
            return [relax.VarBinding(binding.var, made)]
        if isinstance(value, relax.Function):
            return [relax.VarBinding(binding.var, self.function(value))]
        return [binding]


def _bound(var: relax.Var, value: relax.Expr, dataflow: bool) -> list[relax.VarBinding]:
    """Bind a nested expression as calls over leaves, the last one to `var`."""
    bindings: list[relax.VarBinding] = []
    known: dict[int, tuple[relax.Expr, relax.Expr]] = {}

    def leaf(expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, (relax.Call, relax.TupleGetItem, relax.Tuple)):
            return expr
        if _handle(expr) not in known:
            flat = over_leaves(expr)
            if not isinstance(expr, relax.Tuple):
                kind = relax.DataflowVar if dataflow else relax.Var
                variable = kind(f"{var.name}_{len(bindings)}", flat.ty)
                bindings.append(relax.VarBinding(variable, flat))
                flat = variable
            known[_handle(expr)] = (expr, flat)
        return known[_handle(expr)][1]

    def over_leaves(expr: relax.Expr) -> relax.Expr:
        given = operands(expr)
        leaves = [leaf(each) for each in given]
        if all(new is old for new, old in zip(leaves, given)):
            return expr
        if isinstance(expr, relax.Tuple):
            made: relax.Expr = relax.Tuple(leaves, expr.span)
        elif isinstance(expr, relax.TupleGetItem):
            made = relax.TupleGetItem(leaves[0], expr.index, expr.span)
        else:
            made = relax.Call(expr.op, leaves, expr.attrs, expr.ty_args, expr.span)
        if made.ty.is_missing():
            set_type(made, expr.ty)
        return made

    last = over_leaves(value)
    return [*bindings, relax.VarBinding(var, last)]


def _without_unused(blocks: list[Any], result: relax.Expr) -> list[Any]:
    """Remove bindings that are unused because a rule matched across them."""
    used: set[int] = set()

    def note(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Var):
            used.add(_handle(expr))

    relax.analysis.post_order_visit(result, note)
    kept_blocks = []
    for block in reversed(blocks):
        kept = []
        for binding in reversed(block.bindings):
            removable = isinstance(binding, relax.VarBinding) and isinstance(
                binding.var, relax.DataflowVar
            )
            if removable and _handle(binding.var) not in used:
                continue
            _note_leaves(binding.value, note)
            kept.append(binding)
        kept_blocks.append(type(block)(kept[::-1], block.span))
    return kept_blocks[::-1]


def _note_leaves(value: relax.Expr, note: Any) -> None:
    """Report the variables that a bound value uses."""
    if isinstance(value, (relax.Call, relax.TupleGetItem, relax.Tuple)):
        for each in operands(value):
            _note_leaves(each, note)
        if isinstance(value, relax.Call):
            note(value.op)
    elif isinstance(value, (relax.If, relax.Function, relax.SeqExpr)):
        relax.analysis.post_order_visit(value, note)
    else:
        note(value)


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
