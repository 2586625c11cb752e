"""`MarkInternalTensors`: mark the kernel arguments that are always tensors allocated by `main`.

    main(x, w):  t = alloc_tensor((1, 64, 56, 56));  conv2d(x, w, t)
                 u = alloc_tensor((1, 64, 56, 56));  relu(t, u)

t and u have the shape and dtype of their types, are contiguous, and are on the virtual machine's
device. A kernel's entry need not check arguments that are always such tensors: conv2d is marked
with [2], relu with [0, 1]. x and w may be anything, since any caller can call `main`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, GlobalVar
from tvm.tirx import IntImm, PrimFunc
from tvm.tirx.buffer import BufferType

from ...ir.constants import integers, shape_of_type
from ...ir.rewrite import expressions_in, operator_name, relax_functions
from ...runtime.debugger.trace import MOVE_POINTER

NAME = "MarkInternalTensors"
INTERNAL_TENSORS = "baton.internal_tensors"
"""Attribute of kernels: numbers of the arguments that are never anything else than they expect."""

_RESHAPE = "vm.builtin.reshape"


@tvm.transform.module_pass(opt_level=0, name=NAME)
class MarkInternalTensors:
    """Mark the kernels of a module whose functions all run on the CPU, with planned memory."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        made = internal_tensors(mod)
        marked = mod.clone()
        for gvar, numbers in made.items():
            if numbers:
                marked[gvar] = mod[gvar].with_attr(INTERNAL_TENSORS, sorted(numbers))
        return marked


def internal_tensors(mod: tvm.IRModule) -> dict[GlobalVar, frozenset[int]]:
    """Positions of a kernel's arguments that every call allocates itself, with matching types."""
    kernels = {gvar: func for gvar, func in mod.functions_items() if isinstance(func, PrimFunc)}
    found: dict[GlobalVar, frozenset[int]] = {}
    for _, function in relax_functions(mod):
        calls: dict[Call, frozenset[int]] = {}
        _read(function.body, {}, calls)
        for expr in expressions_in(function, Call):
            for gvar in _kernels_in(expr.args, kernels):  # called indirectly
                found[gvar] = frozenset()
            if expr.op in kernels:
                pairs = zip(expr.args, kernels[expr.op].params)
                fit = {number for number, pair in enumerate(pairs) if _fits(*pair)}
                own = calls.get(expr, frozenset()) & fit
                found[expr.op] = found.get(expr.op, own) & own
    return found


def _read(body: Any, made: dict[Any, bool], calls: dict[Call, frozenset[int]]) -> None:
    """Record which call arguments in a function's body are tensors that the body allocates.

    `made`: variables of such tensors; false while kernels reject them because of a byte offset.
    `calls`: for each call, positions of the arguments that are such tensors.
    """
    if not isinstance(body, relax.SeqExpr):
        return
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                _read(value.true_branch, dict(made), calls)
                _read(value.false_branch, dict(made), calls)
            if isinstance(value, relax.Var) and value in made:
                made[binding.var] = made[value]
            if not isinstance(value, Call):
                continue
            args = enumerate(value.args)
            calls[value] = frozenset(
                number for number, arg in args if isinstance(arg, relax.Var) and made.get(arg)
            )
            if isinstance(value.op, GlobalVar) and value.op.name_hint == MOVE_POINTER:
                made.update({arg: True for arg in value.args if arg in made})
            at_start = _begins_where_its_memory_does(value, made)
            if at_start is not None:
                made[binding.var] = at_start


def _begins_where_its_memory_does(call: Call, made: Mapping[Any, bool]) -> bool | None:
    """Whether the tensor that a call creates has byte offset 0; None for other calls."""
    name, args = operator_name(call), call.args
    if name == "builtin.alloc_tensor":
        return True if _is_zero(args[2]) else None
    if name == "memory.alloc_tensor":
        return _is_zero(args[1]) if _is_zero(args[4]) else None
    if name == "memory.view" and args[0] in made:
        return made[args[0]] and (_is_zero(args[3]) or isinstance(args[3], relax.Tuple))
    is_reshape = isinstance(call.op, relax.ExternFunc) and call.op.global_symbol == _RESHAPE
    return made.get(args[0]) if is_reshape else None


def _is_zero(value: Any) -> bool:
    return isinstance(value, IntImm) and int(value) == 0


def _fits(arg: relax.Var, param: Any) -> bool:
    """Whether a contiguous tensor of a variable's type matches a kernel's parameter."""
    ty, buffer = arg.ty, getattr(param, "ty", None)
    shape = shape_of_type(ty)
    if not isinstance(buffer, BufferType) or buffer.strides or not _is_zero(buffer.elem_offset):
        return False
    return (
        shape is not None and shape == integers(buffer.shape) and str(ty.dtype) == str(buffer.dtype)
    )


def _kernels_in(args: Iterable[Any], kernels: Mapping[GlobalVar, PrimFunc]) -> Iterator[GlobalVar]:
    for arg in args:
        if isinstance(arg, relax.Tuple):
            yield from _kernels_in(arg.fields, kernels)
        elif isinstance(arg, GlobalVar) and arg in kernels:
            yield arg
