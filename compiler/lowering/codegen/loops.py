"""Lower loops to functions of the virtual machine, which has branches and calls but no back edges.

    rounds_1(states):  the body, up to FAN_OUT times, while there is more to do
    rounds_2(states):  rounds_1(states), up to FAN_OUT times, while there is more to do
    ...

That is more iterations than can ever run, and calls nest at most LEVELS deep: neither the stack
nor the memory it keeps alive grows with the number of iterations.

If a CPU knows the trip count before the loop, each iteration writes its slices of stacked results
into preallocated tensors. Otherwise slices are concatenated on each level, so that a slice is
copied a few times per level, not once for each later iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import Target

from ...ir.constants import shape_of_type
from ...ir.loops import Loop, erased, loop_of
from ...ir.rewrite import expressions_in
from ...ir.scopes import rebuilt, tuple_of, typed
from ..offloaded_functions import new_global_var
from .lift_constants import MIN_ELEMENTS, is_large, returned_constants

FAN_OUT = 8
LEVELS = 13
_NOTHING = relax.TupleType([])


def hoist_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Pass the large constants of loop bodies to the loops as further captured values.

    Constants that a body returns are passed, too. In `main` they become weights of the library.
    """
    functions = dict(mod.functions_items())
    _Hoister(mod, functions).function(mod.get_global_var("main"))
    return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


@mutator
class _Hoister(PyExprMutator):
    """Rewrites a function, after the bodies of its loops."""

    def __init__(self, mod: tvm.IRModule, functions: dict[Any, Any]) -> None:
        super().__init__()
        self.mod = mod
        self.functions = functions
        self.is_body = False
        self.parameters: dict[relax.Var, relax.Expr] = {}
        self.returned: frozenset[tvm.ir.GenericConst] = frozenset()

    def function(self, gvar: tvm.ir.GlobalVar) -> None:
        """Put the rewritten function into `functions`; a new type needs a new variable."""
        old = self.mod[gvar]
        self.returned = returned_constants(old)
        body = self.visit_expr(old.body)
        made = rebuilt(old, body, [*old.params, *self.parameters])
        if self.parameters:
            del self.functions[gvar]
            gvar = new_global_var(gvar.name_hint, made.ty)
        self.functions[gvar] = made

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        loop = loop_of(op)
        if loop is None:
            return super().visit_call_(op)
        inner = _Hoister(self.mod, self.functions)
        inner.is_body = True
        inner.function(loop.body)
        if not inner.parameters:
            return super().visit_call_(op)
        body = next(gvar for gvar in self.functions if gvar.name_hint == loop.body.name_hint)
        handed = map(self.visit_expr, inner.parameters.values())
        captured = relax.Tuple([*loop.captured.fields, *handed])
        join = body if loop.join.same_as(loop.body) else loop.join
        made = loop._replace(body=body, join=join, captured=captured).call(op.ty)
        return self.builder_.normalize(super().visit_call_(made))

    def visit_generic_const_(self, op: tvm.ir.GenericConst) -> relax.Expr:
        if not self.is_body or not (op in self.returned or is_large(op, MIN_ELEMENTS)):
            return op
        var = relax.Var(f"weight_{len(self.parameters)}", op.ty)
        self.parameters[var] = op
        return var


@tvm.transform.module_pass(opt_level=0, name="ExpandLoops")
class ExpandLoops:
    """Replace each loop by calls that run its iterations, with kernels for `target`."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        functions = dict(mod.functions_items())
        for gvar in list(functions):
            expand(gvar, functions, self.target)
        bodies = {loop.body for function in mod.functions.values() for loop in loops_in(function)}
        for gvar in bodies:  # each is now inlined into a function
            del functions[gvar]
        return tvm.IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def loops_in(function: Any) -> list[Loop]:
    """The loops of a Relax function; none of a kernel."""
    every = expressions_in(function) if isinstance(function, relax.Function) else []
    return [loop for loop in map(loop_of, every) if loop is not None]


def expand(gvar: tvm.ir.GlobalVar, functions: dict[Any, Any], target: Target) -> relax.Function:
    """Expand the loops of a function, and add the functions that run their iterations."""
    if isinstance(functions[gvar], relax.Function):
        functions[gvar] = _Expander(functions, target).visit_expr(functions[gvar])
    return functions[gvar]


@mutator
class _Expander(PyExprMutator):
    def __init__(self, functions: dict[Any, Any], target: Target) -> None:
        super().__init__()
        self.functions = functions
        self.target = target

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        loop = loop_of(op)
        if loop is None:
            return super().visit_call_(op)
        groups = (loop.states, loop.empty, loop.captured, loop.count)
        arguments = [field for group in groups for field in group.fields]
        enter = _Rounds(loop, self.functions, self.target).enter()
        return self.visit_expr(_call(enter, [loop.more, *arguments]))


class _Rounds:
    def __init__(self, loop: Loop, functions: dict[Any, Any], target: Target) -> None:
        self.loop = loop
        self.functions = functions
        self.body = expand(loop.body, functions, target)
        self.states = len(loop.states.fields)
        given = [_outside(var.ty) for var in self.body.params]
        self.given, self.captured = given[: self.states], given[self.states :]
        slices = list(self.body.ret_ty.fields[1 + self.states :])
        self.stacked = [erased(ty) for ty in slices]
        is_known = all(shape_of_type(ty) is not None for ty in slices)
        self.writers: list[tvm.ir.GlobalVar] = []
        if len(loop.count.fields) and is_known and target.kind.name == "llvm":
            for ty in slices:
                self._writer(ty, target)
        after = [loop.more.ty, *self.given, *([] if self.writers else self.stacked)]
        self.after_round = relax.TupleType(after)

    def enter(self) -> tvm.ir.GlobalVar:
        """The function that replaces the loop: all iterations, or none."""
        more = relax.Var("more", self.loop.more.ty)
        counts = [field.ty for field in self.loop.count.fields]
        states, empty, captured, count = (
            [relax.Var(name, ty) for ty in types]
            for name, types in (
                *(("state", self.given), ("empty", self.stacked)),
                *(("captured", self.captured), ("count", counts)),
            )
        )
        scope = _Scope()
        buffers = self._buffers(scope, count[0]) if self.writers else []
        rounds = self._rounds(LEVELS)
        _, *fields = scope.called(rounds, [*states, *captured, *buffers])
        done, nothing = scope.ended_by_tuple([*fields, *buffers]), _Scope()
        body = _Scope().chosen(more, done, nothing.ended_by_tuple([*states, *empty]))
        return self._function("enter", [more, *states, *empty, *captured, *count], body)

    def _buffers(self, scope: _Scope, count: relax.Var) -> list[relax.Var]:
        """Tensors for the slices of all iterations."""
        rounds = tirx.Var("rounds", "int64")
        extents = relax.ShapeType(ndim=1)
        callee = relax.ExternFunc("vm.builtin.tensor_to_shape")
        shape = scope.bind(typed(relax.Call(callee, [count], ty_args=[extents]), extents))
        scope.cast(shape, relax.ShapeType([rounds]))
        found = []
        for ty in self.body.ret_ty.fields[1 + self.states :]:
            whole = relax.ShapeExpr([rounds, *ty.shape.values[1:]])
            call = relax.op.builtin.alloc_tensor(whole, str(ty.dtype), 0, "global")
            found.append(scope.bind(typed(call, relax.TensorType(whole, ty.dtype))))
        return found

    def _writer(self, ty: relax.TensorType, target: Target) -> None:
        """Add a kernel that writes a slice (1, ...) into a tensor for all slices."""
        dtype, shape = str(ty.dtype), list(ty.shape.values)
        rounds = tirx.Var("rounds", "int64")
        source = te.placeholder(shape, dtype, name="slice")
        number = te.placeholder((), "int64", name="number")

        def write(ins: Any, outs: Any) -> Any:
            with IRBuilder() as builder:
                part, place = T.buffer_proxy(ins[0]), T.buffer_proxy(ins[1])
                whole = T.buffer_proxy(outs[0])
                with T.grid(*shape[1:]) if len(shape) > 1 else nullcontext(()) as inner:
                    at = [inner] if isinstance(inner, tirx.Var) else list(inner)
                    whole[tuple([place[()], *at])] = part[tuple([tirx.const(0, "int64"), *at])]
                return builder.get()

        out = te.extern(
            [[rounds, *shape[1:]]], [source, number], write, dtype=dtype, name="write_slice"
        )
        kernel = te.create_prim_func([source, number, out], "int64").with_attr("target", target)
        name = f"{self.loop.body.name_hint}_write_{len(self.writers)}"
        self.writers.append(new_global_var(name, kernel.ty))
        self.functions[self.writers[-1]] = kernel.with_attr("global_symbol", name)

    def _rounds(self, level: int) -> tvm.ir.GlobalVar:
        """A function that runs up to FAN_OUT ** level iterations."""
        states = [relax.Var("state", ty) for ty in self.given]
        buffers = self.stacked if self.writers else []
        captured = [relax.Var("captured", ty) for ty in (*self.captured, *buffers)]
        callee = self._rounds(level - 1) if level > 1 else None
        body = self._attempts(callee, states, captured, FAN_OUT)
        return self._function(f"rounds_{level}", [*states, *captured], body)

    def _attempts(
        self,
        callee: tvm.ir.GlobalVar | None,
        states: Sequence[relax.Var],
        captured: Sequence[relax.Var],
        count: int,
    ) -> relax.SeqExpr:
        """Call up to `count` times, while there is more. Without a callee, inline the body."""
        scope, arguments = _Scope(), [*states, *captured]
        if callee is None:
            own = len(self.body.params)
            more, *fields = scope.inlined(self.body, arguments[:own])
            for writer, part, buffer in zip(self.writers, fields[self.states :], arguments[own:]):
                scope.bind(typed(relax.Call(writer, [part, states[0], buffer]), _NOTHING))
            fields = fields[: self.states] if self.writers else fields
        else:
            more, *fields = scope.called(callee, arguments)
        if count == 1:
            return scope.ended_by_tuple([more, *fields])
        again = self._attempts(callee, fields[: self.states], captured, count - 1)
        stacked = fields[self.states :]
        if stacked:
            again = self._joined(stacked, again)
        return scope.chosen(more, again, _Scope().ended_by_tuple([more, *fields]))

    def _joined(self, stacked: Sequence[relax.Var], later: relax.SeqExpr) -> relax.SeqExpr:
        """Results of later iterations, after the earlier stacked results."""
        scope = _Scope(later)
        more, *fields = scope.fields_of(later.body)
        call = relax.Call(self.loop.join, [*stacked, *fields[self.states :]])
        parts = relax.TupleType(self.stacked)
        joined = scope.fields_of(scope.bind(typed(call, parts)))
        return scope.ended_by_tuple([more, *fields[: self.states], *joined])

    def _function(
        self, name: str, parameters: Sequence[relax.Var], body: relax.SeqExpr
    ) -> tvm.ir.GlobalVar:
        whole = f"{self.loop.body.name_hint}_{name}"
        function = relax.Function(parameters, body, body.ty, is_pure=False)
        gvar = new_global_var(whole, function.ty)
        self.functions[gvar] = function.with_attr("global_symbol", whole)
        return gvar


class _Scope:
    def __init__(self, start: relax.SeqExpr | None = None) -> None:
        blocks = start.blocks if start is not None else []
        self.bindings = [binding for block in blocks for binding in block.bindings]

    def bind(self, value: relax.Expr) -> relax.Var:
        var = relax.Var("lv", value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def fields_of(self, whole: relax.Var) -> list[relax.Var]:
        return [
            self.bind(typed(relax.TupleGetItem(whole, index), ty))
            for index, ty in enumerate(whole.ty.fields)
        ]

    def cast(self, value: relax.Var, ty: Any) -> None:
        """Bind the symbols of a type to the extents of a value."""
        self.bindings.append(relax.MatchCast(relax.Var("lv", ty), value, ty))

    def called(self, callee: tvm.ir.GlobalVar, arguments: Sequence[relax.Expr]) -> list[relax.Var]:
        """Call a function; returns the fields of its result."""
        return self.fields_of(self.bind(_call(callee, arguments)))

    def inlined(
        self, function: relax.Function, arguments: Sequence[relax.Expr]
    ) -> list[relax.Expr]:
        """Inline a function into this scope; returns the fields of its result tuple."""
        copy = relax.utils.copy_with_new_vars(function)
        for var, value in zip(copy.params, arguments, strict=True):
            is_known = tvm_ffi.structural_equal(var.ty, value.ty)
            self.bindings.append(
                relax.VarBinding(var, value) if is_known else relax.MatchCast(var, value, var.ty)
            )
        *bindings, last = [binding for block in copy.body.blocks for binding in block.bindings]
        self.bindings += bindings
        if isinstance(last.value, relax.Tuple) and last.var.same_as(copy.body.body):
            return list(last.value.fields)
        self.bindings.append(last)
        return list(self.fields_of(copy.body.body))

    def chosen(self, condition: relax.Var, yes: relax.SeqExpr, no: relax.SeqExpr) -> relax.SeqExpr:
        """End the scope with a conditional; its value is that of the branch taken."""
        return self.ended_by(self.bind(typed(relax.If(condition, yes, no), yes.ty)))

    def ended_by_tuple(self, fields: Sequence[relax.Expr]) -> relax.SeqExpr:
        return self.ended_by(self.bind(tuple_of(fields)))

    def ended_by(self, result: relax.Var) -> relax.SeqExpr:
        blocks = [relax.BindingBlock(self.bindings)] if self.bindings else []
        return typed(relax.SeqExpr(blocks, result), result.ty)


def _outside(ty: Any) -> Any:
    """A type without the symbols of this function, as other functions see it."""
    return ty if not relax.analysis.free_symbolic_vars(relax.Var("value", ty)) else erased(ty)


def _call(callee: tvm.ir.GlobalVar, arguments: Sequence[relax.Expr]) -> relax.Call:
    return typed(relax.Call(callee, list(arguments)), callee.ty.ret)
